#include "api/json_fields.h"

#include <set>

namespace millrace::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// One pass over the text. Every method returns false to stop: at malformed text or at a find.
class Scanner {
 public:
  explicit Scanner(std::string_view json) : rest_(json) {}

  // A value whose fields are those of `type`; null: not looked into.
  bool Value(const Descriptor* type, const std::string& path, int depth) {
    constexpr int kDepthMax = 100;  // the parser's own bound
    SkipBlank();
    if (rest_.empty() || depth > kDepthMax) return false;
    switch (rest_.front()) {
      case '{':
        return Object(type, path, depth);
      case '[':
        return Array(type, path, depth);
      case '"': {
        std::string_view text;
        return String(&text);
      }
      default: {
        size_t end = rest_.find_first_of(",]} \t\r\n");
        if (end == 0) return false;
        rest_.remove_prefix(end == rest_.npos ? rest_.size() : end);
        return true;
      }
    }
  }
  std::optional<std::string> found() const { return found_; }

 private:
  bool Object(const Descriptor* type, const std::string& path, int depth) {
    std::set<const FieldDescriptor*> seen;
    rest_.remove_prefix(1);
    if (Take('}')) return true;
    while (true) {
      std::string_view key;
      SkipBlank();
      if (rest_.empty() || rest_.front() != '"' || !String(&key) || !Take(':')) return false;
      const FieldDescriptor* field = type == nullptr ? nullptr : Find(*type, std::string(key));
      std::string inner = path;
      if (field != nullptr) {
        if (!inner.empty()) inner += '.';
        inner += field->name();
        if (!seen.insert(field).second) {
          found_ = inner;
          return false;
        }
      }
      const Descriptor* inner_type =
          field == nullptr || field->is_map() ? nullptr : field->message_type();
      if (!Value(inner_type, inner, depth + 1)) return false;
      if (Take('}')) return true;
      if (!Take(',')) return false;
    }
  }

  bool Array(const Descriptor* type, const std::string& path, int depth) {
    rest_.remove_prefix(1);
    if (Take(']')) return true;
    for (size_t i = 0;; ++i) {
      if (!Value(type, path + "[" + std::to_string(i) + "]", depth + 1)) return false;
      if (Take(']')) return true;
      if (!Take(',')) return false;
    }
  }

  // `rest_` begins with a quote.
  bool String(std::string_view* text) {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    *text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool Take(char c) {
    SkipBlank();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void SkipBlank() {
    size_t at = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(at == rest_.npos ? rest_.size() : at);
  }

  static const FieldDescriptor* Find(const Descriptor& type, const std::string& key) {
    if (const FieldDescriptor* field = type.FindFieldByName(key)) return field;
    return type.FindFieldByCamelcaseName(key);
  }

  std::string_view rest_;
  std::optional<std::string> found_;
};

}  // namespace

std::optional<std::string> FindRepeatedField(std::string_view json, const Descriptor& type) {
  Scanner scanner(json);
  scanner.Value(&type, "", 0);
  return scanner.found();
}

}  // namespace millrace::api
