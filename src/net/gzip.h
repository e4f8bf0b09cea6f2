// Gzip for message bodies.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::net {

// Unpacks all gzip members in `packed`. INVALID_ARGUMENT if they are damaged or cut short,
// RESOURCE_EXHAUSTED if more than `bytes_max` would come out; no more than that is ever allocated.
StatusOr<std::string> Gunzip(std::string_view packed, size_t bytes_max);

// Packs into one member, for senders and tests.
std::string Gzip(std::string_view plain);

}  // namespace millrace::net
