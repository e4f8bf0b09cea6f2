#include "api/path_template.h"

#include <fmt/format.h>

namespace millrace::api {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string DecodePercent(std::string_view text, bool keep_slash, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexValue(text[i + 1]) >= 0 &&
        HexValue(text[i + 2]) >= 0) {
      char c = static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2]));
      if (!(keep_slash && c == '/')) {
        out += c;
        i += 2;
        continue;
      }
    }
    out += plus_is_space && text[i] == '+' ? ' ' : text[i];
  }
  return out;
}

RequestPath::RequestPath(std::string_view path) {
  if (path.starts_with('/')) path.remove_prefix(1);
  while (true) {
    size_t slash = path.find('/');
    segments.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  std::string_view& last = segments.back();
  if (size_t colon = last.rfind(':'); colon != std::string_view::npos) {
    verb = last.substr(colon + 1);
    last = last.substr(0, colon);
  }
}

StatusOr<PathTemplate> PathTemplate::Parse(std::string_view text) {
  PathTemplate parsed;
  std::string_view rest = text;
  bool ok = rest.starts_with('/');
  if (ok) {
    rest.remove_prefix(1);
    size_t colon = rest.rfind(':');
    if (colon != std::string_view::npos && rest.find_first_of("/}", colon) == rest.npos) {
      parsed.verb_ = rest.substr(colon + 1);
      rest = rest.substr(0, colon);
    }
  }
  // Segments stand between slashes outside braces; a variable holds segments of its own.
  while (ok && !rest.empty()) {
    if (rest.front() != '{') {
      size_t end = std::min(rest.find('/'), rest.size());
      ok = parsed.AddSegment(rest.substr(0, end));
      rest.remove_prefix(end);
    } else {
      size_t end = rest.find('}');
      if (end == std::string_view::npos) {
        ok = false;
        break;
      }
      std::string_view inside = rest.substr(1, end - 1);
      size_t equals = inside.find('=');
      Variable variable{std::string(inside.substr(0, equals)), parsed.segments_.size(), 0};
      ok = equals == inside.npos ? parsed.AddSegment("*")
                                 : parsed.ParseSegments(inside.substr(equals + 1));
      variable.end = parsed.segments_.size();
      parsed.variables_.push_back(std::move(variable));
      rest.remove_prefix(end + 1);
    }
    if (ok && !rest.empty()) {
      ok = rest.front() == '/';
      rest.remove_prefix(1);
    }
  }
  if (!ok || parsed.segments_.empty()) {
    return InvalidArgument(fmt::format("\"{}\" is not a path template of google.api.http.", text));
  }
  return parsed;
}

bool PathTemplate::ParseSegments(std::string_view text) {
  while (true) {
    size_t slash = text.find('/');
    if (!AddSegment(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool PathTemplate::AddSegment(std::string_view text) {
  if (text.empty() || (!segments_.empty() && segments_.back().kind == Kind::kRest)) return false;
  if (text == "*") {
    segments_.push_back({Kind::kOne, {}});
  } else if (text == "**") {
    segments_.push_back({Kind::kRest, {}});
  } else {
    segments_.push_back({Kind::kLiteral, std::string(text)});
  }
  return true;
}

std::optional<PathBindings> PathTemplate::Match(const RequestPath& path) const {
  bool rest = segments_.back().kind == Kind::kRest;
  if (path.verb != verb_ ||
      (rest ? path.segments.size() < segments_.size() : path.segments.size() != segments_.size())) {
    return std::nullopt;
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].kind == Kind::kLiteral
            ? DecodePercent(path.segments[i]) != segments_[i].literal
            : path.segments[i].empty()) {
      return std::nullopt;
    }
  }
  PathBindings bindings;
  for (const Variable& variable : variables_) {
    size_t end = rest && variable.end == segments_.size() ? path.segments.size() : variable.end;
    bool several = end - variable.begin > 1;
    std::string value;
    for (size_t i = variable.begin; i < end; ++i) {
      if (i > variable.begin) value += '/';
      value += DecodePercent(path.segments[i], /*keep_slash=*/several);
    }
    bindings.emplace_back(variable.field, std::move(value));
  }
  return bindings;
}

}  // namespace millrace::api
