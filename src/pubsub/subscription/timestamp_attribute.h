// Event time of a message: the value of an attribute, read from the wire bytes. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace millrace::pubsub {

// Value of attribute `name` of a serialised PubsubMessage (the last one, should it stand there
// twice); nullopt: it has none.
std::optional<std::string_view> FindAttribute(std::string_view wire, std::string_view name);

// Decimal milliseconds since the epoch, or RFC 3339 in UTC ("2026-01-02T03:04:05.678Z"; digits past
// milliseconds are dropped). nullopt: neither.
std::optional<int64_t> ParseEventTimeMs(std::string_view text);

// What counts as the event time of a message: the attribute, or the publish time if that is missing
// or malformed.
int64_t EventTimeMs(std::string_view wire, std::string_view attribute, WallTime publish_time);

}  // namespace millrace::pubsub
