// URL path templates of google.api.http: "/v1/{topic=projects/*/topics/*}:publish".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millrace::api {

// Field path and decoded value, in the template's order.
using PathBindings = std::vector<std::pair<std::string, std::string>>;

// The path of a request, cut once and matched against many templates.
struct RequestPath {
  // `path` is raw (percent-encoded), without query.
  explicit RequestPath(std::string_view path);

  std::vector<std::string_view> segments;  // raw, without the verb
  std::string_view verb;                   // what follows the last ':' of the last segment
};

class PathTemplate {
 public:
  static StatusOr<PathTemplate> Parse(std::string_view text);
  // Empty if the path does not match.
  std::optional<PathBindings> Match(const RequestPath& path) const;

 private:
  enum class Kind { kLiteral, kOne, kRest };
  struct Segment {
    Kind kind;
    std::string literal;
  };
  struct Variable {
    std::string field;
    size_t begin, end;  // of its segments
  };
  bool ParseSegments(std::string_view text);
  bool AddSegment(std::string_view text);

  std::vector<Segment> segments_;
  std::vector<Variable> variables_;
  std::string verb_;
};

// Percent-decodes; "%2F" stays as it is with `keep_slash`, and malformed escapes always do.
std::string DecodePercent(std::string_view text, bool keep_slash = false,
                          bool plus_is_space = false);

}  // namespace millrace::api
