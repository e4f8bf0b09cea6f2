#include "connectors/pubsub/message_fields.h"

#include <optional>

#include "pubsub/subscription/timestamp_attribute.h"
#include "pubsub/topic/wire_cursor.h"
#include "windowing/wire.h"

namespace millrace::connectors::pubsub {
namespace {

using millrace::pubsub::WireCursor;
using millrace::pubsub::WireTag;

constexpr uint32_t kLengthDelimited = 2;
constexpr uint32_t kData = WireTag(1, kLengthDelimited);
constexpr uint32_t kMessageId = WireTag(3, kLengthDelimited);

std::string_view Field(std::string_view wire, uint32_t wanted) {
  WireCursor cursor(wire);
  std::string_view found;
  uint32_t tag = 0;
  while (!cursor.AtEnd() && cursor.Tag(&tag)) {
    if (tag == wanted) {
      if (!cursor.Bytes(&found)) return {};
    } else if (!cursor.Skip(tag, 0)) {
      return {};
    }
  }
  return found;
}

}  // namespace

std::string_view DataOf(std::string_view wire) { return Field(wire, kData); }

std::string DedupId(std::string_view wire, std::string_view id_attribute) {
  if (!id_attribute.empty()) {
    if (auto value = millrace::pubsub::FindAttribute(wire, id_attribute))
      return std::string(*value);
  }
  return std::string(Field(wire, kMessageId));
}

int64_t EventTime(std::string_view wire, std::string_view timestamp_attribute,
                  WallTime publish_time) {
  return millrace::pubsub::EventTimeMs(wire, timestamp_attribute, publish_time);
}

void AddAttribute(std::string& wire, std::string_view key, std::string_view value) {
  std::string entry;
  entry.push_back(static_cast<char>(WireTag(1, kLengthDelimited)));
  windowing::AppendBytes(entry, key);
  entry.push_back(static_cast<char>(WireTag(2, kLengthDelimited)));
  windowing::AppendBytes(entry, value);
  wire.push_back(static_cast<char>(WireTag(2, kLengthDelimited)));
  windowing::AppendBytes(wire, entry);
}

}  // namespace millrace::connectors::pubsub
