// Reads a publish call off the wire and writes what will be stored, in one pass and one buffer,
// without the generated class.
//
// What it accepts is exactly what the generated class would parse and spec/pubsub 4.2 allows; a
// randomised test and a fuzzer hold it to that. Pure functions, any thread. Knows neither topics
// nor offsets: id and time are stamped in later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace millrace::pubsub {

inline constexpr size_t kPublishRequestBytesMax = 10'000'000;
inline constexpr uint32_t kPublishMessagesMax = 1000;
inline constexpr size_t kAttributesMax = 100;
inline constexpr size_t kAttributeKeyBytesMax = 256;
inline constexpr size_t kAttributeValueBytesMax = 1024;
inline constexpr size_t kOrderingKeyBytesMax = 1024;

// The body of a TopicEntry (entry_body.h) with blank stamps. Move-only in effect: Stamp gives the
// buffer away.
struct ScannedPublish {
  std::string topic;         // as the caller wrote it, not checked
  std::string ordering_key;  // of all messages; of the first, if they may differ
  uint32_t count = 0;
  std::shared_ptr<char[]> buffer;
  size_t size = 0;

  SharedBytes Stamp(uint64_t first_id, WallTime publish_time) &&;
};

// `request` is a serialised PublishRequest. The caller's message ids and publish times are dropped,
// of attributes of one name the last is kept, unknown fields are dropped.
StatusOr<ScannedPublish> ScanPublishRequest(std::string_view request);

// The same for serialised PubsubMessages that come from inside: any number, ordering keys may
// differ, `topic` stays empty.
StatusOr<ScannedPublish> ScanMessages(const std::vector<SharedBytes>& messages);

}  // namespace millrace::pubsub
