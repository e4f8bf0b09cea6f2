// Absolute http and https URLs, as far as a client needs them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::net {

struct Url {
  bool tls = false;
  std::string host;       // a name or an address, IPv6 without brackets
  std::string port;       // decimal, the scheme's own if the URL has none
  std::string authority;  // as the Host header has it
  std::string target;     // path and query, "/" at least
};

// INVALID_ARGUMENT says what is wrong. User names and passwords in URLs are refused, a fragment is
// dropped.
StatusOr<Url> ParseUrl(std::string_view text);

}  // namespace millrace::net
