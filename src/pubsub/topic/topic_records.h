// What a topic's shard writes to the log, beside the messages: one record a publish call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::pubsub {

// Kinds are stored on disk: never renumber.
struct TopicRecord {
  enum class Kind : uint8_t {
    kPublish = 1,     // the record's entry holds the messages; they have ids from first_id
    kReserveIds = 2,  // ids below id_end may have been given to messages that were not stored
    kProducer = 3,    // nothing stored, but the producer's sequence is done
  };
  Kind kind = Kind::kPublish;
  uint64_t first_id = 0;
  uint64_t id_end = 0;
  std::string producer;  // empty: an ordinary publish
  uint64_t sequence = 0;

  std::string Serialize() const;
  static StatusOr<TopicRecord> Parse(std::string_view bytes);
};

}  // namespace millrace::pubsub
