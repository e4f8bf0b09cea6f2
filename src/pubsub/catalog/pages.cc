#include "pubsub/catalog/pages.h"

#include <fmt/format.h>

#include "absl/strings/escaping.h"
#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr int32_t kPageSizeMax = 1000;

// FNV-1a: tells tokens of ours from other text, no more.
uint32_t Checksum(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

}  // namespace

StatusOr<Page> ParsePage(int32_t page_size, std::string_view token) {
  if (page_size < 0 || page_size > kPageSizeMax) {
    return InvalidArgument(
        fmt::format("The value for page_size is out of bounds. You passed {} in the request, but "
                    "the value must be between 0 and {}.",
                    page_size, kPageSizeMax));
  }
  Page page;
  page.size = page_size == 0 ? kPageSizeMax : page_size;
  if (token.empty()) return page;
  std::string decoded;
  if (!absl::WebSafeBase64Unescape({token.data(), token.size()}, &decoded) || decoded.size() < 5 ||
      storage::ReadFixed32(decoded.data()) != Checksum(std::string_view(decoded).substr(4))) {
    return InvalidArgument(fmt::format("Invalid page token given (token={}).", token));
  }
  page.after = decoded.substr(4);
  return page;
}

std::string PageToken(std::string_view last_name) {
  std::string bytes;
  storage::PutFixed32(bytes, Checksum(last_name));
  bytes.append(last_name);
  return absl::WebSafeBase64Escape(bytes);
}

}  // namespace millrace::pubsub
