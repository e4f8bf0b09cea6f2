// Names of what is stored: shards, records, entries of topic logs.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"

namespace millrace::storage {

// Place in the commit log: grows by every frame, survives recycling of segments.
using Lsn = uint64_t;

// Kinds are stored on disk: never renumber.
enum class ShardKind : uint8_t {
  kCatalog = 1,
  kTopic = 2,
  kSubscription = 3,
  kJobs = 4,   // the job catalogue
  kRange = 5,  // a key range of a stage of a job
};

// Owner of a record; stable over restarts.
struct ShardId {
  ShardKind kind{};
  uint64_t uid = 0;
  friend auto operator<=>(const ShardId&, const ShardId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ShardId& id) {
    return H::combine(std::move(h), static_cast<uint8_t>(id.kind), id.uid);
  }
};

// One partition of a topic's log.
struct TopicPartition {
  uint64_t topic_uid = 0;
  uint32_t partition = 0;
  friend auto operator<=>(const TopicPartition&, const TopicPartition&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TopicPartition& tp) {
    return H::combine(std::move(h), tp.topic_uid, tp.partition);
  }
};

// All messages of one publish call: offsets first_offset … first_offset + count - 1. The log
// indexes it and keeps the body readable by ReadEntries until liveness lets it go. The body is
// opaque here.
struct TopicEntry {
  TopicPartition partition;
  uint64_t first_offset = 0;
  uint32_t count = 0;
  WallTime publish_time;
  SharedBytes body;
};

// What a shard decided. seq counts a shard's records from 1 without gaps, so that replay can skip
// what a checkpoint holds.
struct Record {
  ShardId shard;
  uint64_t seq = 0;
  SharedBytes payload;
  std::optional<TopicEntry> entry;
};

}  // namespace millrace::storage
