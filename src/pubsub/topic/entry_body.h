// The body of a storage::TopicEntry: the messages of one publish call, as they will be delivered.
//
//   body    = message*                       as many as the entry counts, in offset order
//   message = 0x12, varint length, wire      "field 2, length-delimited"
//   wire    = a serialised PubsubMessage that begins with its stamp, 32 bytes of fixed width:
//             0x1a 0x10, 16 decimal digits                          message_id
//             0x22 0x0c 0x08, 5 bytes seconds, 0x10, 5 bytes nanos   publish_time, padded varints
//             then data, attributes and ordering key, at most one of each name
//
// 0x12 is the tag of ReceivedMessage.message, so a delivery is this piece of the body as it stands
// with an ack id before it; it is also the tag of PublishRequest.messages, so a body parses as a
// PublishRequest (tests do that). The stamp's width is fixed because the scanner writes the body
// before the shard knows id and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace millrace::pubsub {

inline constexpr char kMessageTag = 0x12;
inline constexpr size_t kStampBytes = 32;
inline constexpr uint64_t kMessageIdMin = 1'000'000'000'000'000;  // 16 digits
inline constexpr uint64_t kMessageIdEnd = 10'000'000'000'000'000;

// Walks the messages of a body. Any thread, no state but the position.
class EntryBodyReader {
 public:
  explicit EntryBodyReader(std::string_view body) : rest_(body) {}

  // False at the end, and where the framing is broken: then ok() is false.
  bool Next(std::string_view* wire) {
    if (rest_.empty()) return false;
    const auto* p = reinterpret_cast<const uint8_t*>(rest_.data());
    const uint8_t* end = p + rest_.size();
    if (*p++ != kMessageTag) return Fail();
    uint64_t size = 0;
    for (int shift = 0;; shift += 7) {
      if (p == end || shift > 28) return Fail();
      uint8_t byte = *p++;
      size |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    if (size > static_cast<uint64_t>(end - p)) return Fail();
    *wire = std::string_view(reinterpret_cast<const char*>(p), size);
    rest_.remove_prefix(wire->data() + size - rest_.data());
    return true;
  }
  bool ok() const { return ok_; }

 private:
  bool Fail() {
    rest_ = {};
    ok_ = false;
    return false;
  }

  std::string_view rest_;
  bool ok_ = true;
};

// Writes ids `first_id`, `first_id` + 1 … and the time into the stamps of all messages of `body`,
// whose framing is right.
void StampBody(char* body, size_t size, uint64_t first_id, WallTime publish_time);

}  // namespace millrace::pubsub
