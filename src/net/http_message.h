// HTTP/1.1 requests and responses as values, shared by server and client.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace millrace::net {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The first value of that header, compared without regard to case, or null.
const std::string* FindHeader(const HttpHeaders& headers, std::string_view name);

// A whole request. `body` is decoded: neither chunked nor gzipped any more.
struct HttpRequest {
  std::string method;  // "GET", "POST", …, as sent
  std::string target;  // raw path and query, still percent-encoded
  HttpHeaders headers;
  SharedBytes body;
  std::string peer;  // "ADDRESS:PORT", IPv6 in brackets

  const std::string* Header(std::string_view name) const { return FindHeader(headers, name); }
};

// Content-Length, Date and Connection are the server's own and must not be among `headers`.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// An error in the form Google's REST APIs use:
// {"error":{"code":413,"message":"…","status":"INVALID_ARGUMENT"}}.
HttpResponse HttpError(int http_status, std::string_view status_name, std::string_view message);

}  // namespace millrace::net
