#include "net/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace millrace::net {
namespace {

// Takes `prefix`, in any case, off the front of `text`.
bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (text->size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>((*text)[i])) != prefix[i]) return false;
  }
  text->remove_prefix(prefix.size());
  return true;
}

bool IsPort(std::string_view text) {
  if (text.empty() || text.size() > 5) return false;
  int value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  return value >= 1 && value <= 65535;
}

}  // namespace

StatusOr<Url> ParseUrl(std::string_view text) {
  auto bad = [text](std::string_view why) {
    return InvalidArgument(fmt::format("URL \"{}\" {}.", text, why));
  };
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return c <= 0x20 || c == 0x7f; })) {
    return InvalidArgument("A URL must not contain spaces or control characters.");
  }
  Url url;
  std::string_view rest = text;
  if (TakePrefix("https://", &rest)) {
    url.tls = true;
  } else if (!TakePrefix("http://", &rest)) {
    return bad("must begin with http:// or https://");
  }
  rest = rest.substr(0, rest.find('#'));
  size_t authority_end = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, authority_end);
  std::string_view target = rest.substr(authority_end);
  if (authority.find('@') != std::string_view::npos) {
    return bad("must not contain a user name or password");
  }
  std::string_view after_host;
  if (!authority.empty() && authority[0] == '[') {
    size_t end = authority.find(']');
    if (end == std::string_view::npos)
      return bad("has an IPv6 address without its closing bracket");
    url.host = std::string(authority.substr(1, end - 1));
    after_host = authority.substr(end + 1);
  } else {
    size_t end = std::min(authority.find(':'), authority.size());
    url.host = std::string(authority.substr(0, end));
    after_host = authority.substr(end);
  }
  if (url.host.empty()) return bad("names no host");
  std::string_view default_port = url.tls ? "443" : "80";
  url.port = std::string(default_port);
  if (!after_host.empty() && after_host != ":") {
    if (after_host[0] != ':' || !IsPort(after_host.substr(1))) {
      return bad("has a port that is not between 1 and 65535");
    }
    url.port = std::string(after_host.substr(1));
  }
  bool bracketed = authority[0] == '[';
  url.authority = bracketed ? fmt::format("[{}]", url.host) : url.host;
  if (url.port != default_port) url.authority += ":" + url.port;
  if (target.empty() || target[0] == '?') url.target = '/';
  url.target += target;
  return url;
}

}  // namespace millrace::net
