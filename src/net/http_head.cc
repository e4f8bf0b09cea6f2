#include "net/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>

namespace millrace::net {
namespace {

bool IsCleanHeaderText(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; });
}

}  // namespace

bool HasBody(int http_status) { return http_status != 204 && http_status != 304; }

std::string ResponseHead(const HttpResponse& response, const std::string& date,
                         AfterResponse after) {
  namespace http = boost::beast::http;
  auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(response.status)));
  std::string head;
  head.reserve(256);
  auto out = std::back_inserter(head);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                 std::string_view(reason.data(), reason.size()), date);
  if (HasBody(response.status)) {
    if (!response.content_type.empty() && IsCleanHeaderText(response.content_type)) {
      fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
    }
    fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  }
  for (const auto& [name, value] : response.headers) {
    if (IsCleanHeaderText(name) && IsCleanHeaderText(value)) {
      fmt::format_to(out, "{}: {}\r\n", name, value);
    }
  }
  if (after == AfterResponse::kClose) head += "Connection: close\r\n";
  if (after == AfterResponse::kKeepOpenHttp10) head += "Connection: keep-alive\r\n";
  head += "\r\n";
  return head;
}

std::string HttpDate(time_t second) {
  tm parts;
  gmtime_r(&second, &parts);
  char text[64];
  return {text, strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace millrace::net
