// Fields of a serialised PubsubMessage that the connector reads or adds. Pure functions over wire
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace millrace::connectors::pubsub {

// The message's data; empty if it has none.
std::string_view DataOf(std::string_view wire);
// Value of the id attribute, or the message id where that is missing or no attribute is asked for.
std::string DedupId(std::string_view wire, std::string_view id_attribute);
// Milliseconds: the attribute as decimal milliseconds or RFC 3339; publish time where it is missing
// or malformed.
int64_t EventTime(std::string_view wire, std::string_view timestamp_attribute,
                  WallTime publish_time);
// Adds an attribute; of duplicates the last one wins.
void AddAttribute(std::string& wire, std::string_view key, std::string_view value);

}  // namespace millrace::connectors::pubsub
