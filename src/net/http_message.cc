#include "net/http_message.h"

#include <fmt/format.h>

#include "absl/strings/match.h"

namespace millrace::net {
namespace {

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c < 0x20) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", c);
    } else {
      out->push_back(static_cast<char>(c));
    }
  }
  out->push_back('"');
}

}  // namespace

const std::string* FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase({key.data(), key.size()}, {name.data(), name.size()})) return &value;
  }
  return nullptr;
}

HttpResponse HttpError(int http_status, std::string_view status_name, std::string_view message) {
  HttpResponse response;
  response.status = http_status;
  response.content_type = "application/json; charset=UTF-8";
  response.body = fmt::format("{{\"error\":{{\"code\":{},\"message\":", http_status);
  AppendJsonString(message, &response.body);
  response.body += ",\"status\":";
  AppendJsonString(status_name, &response.body);
  response.body += "}}\n";
  return response;
}

}  // namespace millrace::net
