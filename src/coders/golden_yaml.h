// Reads the subset of YAML that Beam's standard_coders.yaml is written in: block mappings, flow
// mappings and lists, plain and double-quoted scalars, comments. Tests only.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::coders {

struct Yaml {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;  // UTF-8
  std::vector<Yaml> items;
  std::vector<std::pair<std::string, Yaml>> entries;

  const Yaml* Find(std::string_view key) const {
    for (const auto& [name, value] : entries) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  const Yaml& At(std::string_view key) const {
    static const Yaml kMissing;
    const Yaml* found = Find(key);
    return found == nullptr ? kMissing : *found;
  }
};

// The bytes that a string of code points below 256 stands for.
inline std::string BytesOf(std::string_view utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead < 0x80 || i + 1 == utf8.size()) {
      bytes.push_back(utf8[i]);
    } else {
      bytes.push_back(static_cast<char>((lead & 0x03) << 6 | (utf8[++i] & 0x3f)));
    }
  }
  return bytes;
}

class YamlReader {
 public:
  explicit YamlReader(std::string_view text) : text_(text) {}

  Yaml ReadDocument() {
    SkipSpace();
    return ReadValue();
  }

 private:
  bool End() const { return at_ >= text_.size(); }
  char Peek() const { return End() ? '\0' : text_[at_]; }

  void SkipSpace() {
    while (!End()) {
      if (Peek() == '#') {
        while (!End() && Peek() != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(Peek()))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  void SkipBlanks() {
    while (Peek() == ' ') ++at_;
  }
  size_t Column() const {
    const size_t line = at_ == 0 ? std::string_view::npos : text_.rfind('\n', at_ - 1);
    return line == std::string_view::npos ? at_ : at_ - line - 1;
  }

  static void AppendCodePoint(std::string& out, unsigned code) {
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      out.push_back(static_cast<char>(0xc0 | code >> 6));
      out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
    } else {
      out.push_back(static_cast<char>(0xe0 | code >> 12));
      out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
      out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
    }
  }

  std::string ReadQuoted() {
    std::string out;
    for (++at_; !End() && Peek() != '"'; ++at_) {
      if (Peek() != '\\') {
        out.push_back(Peek());
        continue;
      }
      ++at_;
      const size_t digits = Peek() == 'x' ? 2 : Peek() == 'u' ? 4 : 0;
      if (digits > 0) {
        AppendCodePoint(out, std::stoul(std::string(text_.substr(at_ + 1, digits)), nullptr, 16));
        at_ += digits;
        continue;
      }
      switch (Peek()) {
        case '0':
          out.push_back('\0');
          break;
        case 'n':
          out.push_back('\n');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 't':
          out.push_back('\t');
          break;
        default:
          out.push_back(Peek());
      }
    }
    ++at_;
    return out;
  }

  std::string ReadPlain(std::string_view stops) {
    const size_t start = at_;
    while (!End() && Peek() != '\n' && stops.find(Peek()) == std::string_view::npos) ++at_;
    std::string_view plain = text_.substr(start, at_ - start);
    while (!plain.empty() && plain.back() == ' ') plain.remove_suffix(1);
    return std::string(plain);
  }

  static Yaml Scalar(std::string text, bool quoted) {
    Yaml value;
    if (quoted || (text != "null" && !text.empty())) value.kind = Yaml::Kind::kScalar;
    value.text = std::move(text);
    return value;
  }

  Yaml ReadFlow() {
    SkipSpace();
    if (Peek() == '"') return Scalar(ReadQuoted(), true);
    if (Peek() != '{' && Peek() != '[') return Scalar(ReadPlain(",]}:"), false);
    Yaml value;
    const bool map = Peek() == '{';
    value.kind = map ? Yaml::Kind::kMap : Yaml::Kind::kList;
    ++at_;
    for (SkipSpace(); !End() && Peek() != ']' && Peek() != '}'; SkipSpace()) {
      Yaml item = ReadFlow();
      SkipSpace();
      if (map && Peek() == ':') {
        ++at_;
        value.entries.emplace_back(item.text, ReadFlow());
      } else {
        value.items.push_back(std::move(item));
      }
      SkipSpace();
      if (Peek() == ',') ++at_;
    }
    ++at_;
    return value;
  }

  // A scalar, a flow value or a block mapping that begins here.
  Yaml ReadValue() {
    if (Peek() == '{' || Peek() == '[') return ReadFlow();
    const size_t start = at_;
    const size_t column = Column();
    const bool quoted = Peek() == '"';
    Yaml scalar = quoted ? Scalar(ReadQuoted(), true) : Scalar(ReadPlain(":#"), false);
    SkipBlanks();
    if (Peek() != ':') return scalar;
    at_ = start;
    return ReadBlock(column);
  }

  Yaml ReadBlock(size_t column) {
    Yaml map;
    map.kind = Yaml::Kind::kMap;
    while (!End() && Column() == column) {
      std::string key = Peek() == '"' ? ReadQuoted() : ReadPlain(":");
      SkipBlanks();
      ++at_;  // the colon
      SkipSpace();
      const bool has_value = !End() && (Column() > column);
      map.entries.emplace_back(std::move(key), has_value ? ReadValue() : Yaml());
      SkipSpace();
    }
    return map;
  }

  std::string_view text_;
  size_t at_ = 0;
};

inline std::vector<Yaml> ReadYamlDocuments(std::string_view text) {
  std::vector<Yaml> documents;
  while (!text.empty()) {
    const size_t end = text.find("\n---\n");
    YamlReader reader(text.substr(0, end == std::string_view::npos ? end : end + 1));
    documents.push_back(reader.ReadDocument());
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 5);
  }
  return documents;
}

}  // namespace millrace::coders
