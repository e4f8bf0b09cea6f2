// Pages of lists (spec/pubsub 2.3): sorted by name, an opaque token names the last one shown, which
// may be gone by then.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::pubsub {

struct Page {
  size_t size = 0;
  std::string after;  // names greater than this; empty: from the first
};

StatusOr<Page> ParsePage(int32_t page_size, std::string_view token);
std::string PageToken(std::string_view last_name);

}  // namespace millrace::pubsub
