// Keys of the engine's rows in Store. All rows of a job start with its uid, all of a range with
// (job, stage, range, kind).
#pragma once

#include <cstdint>
#include <string>

#include "engine/element.h"
#include "storage/types.h"
#include "windowing/wire.h"

namespace millrace::engine {

enum class RowKind : char {
  kMeta = 'm',      // kPending: a range's counters and watermarks
  kChunk = 'c',     // kPending: elements that wait
  kMarks = 'd',     // kPending: which elements of a chunk are gone
  kCell = 'g',      // kPending: what a cell has emitted, its trigger
  kResidual = 'r',  // kPending: rests of splittable work
  kState = 's',     // kState: user state
  kSide = 'v',      // kState: side inputs
  kTimer = 't',     // kTimers
  kIds = 'i',       // kDedup: one run of ids
};

inline constexpr uint32_t kJobStage = 0xffff;  // rows and records of the job as a whole

inline std::string JobPrefix(uint64_t job) {
  std::string key;
  windowing::AppendBigEndian64(key, job);
  return key;
}
inline std::string RangePrefix(uint64_t job, uint32_t stage, uint16_t range, RowKind kind) {
  std::string key = JobPrefix(job);
  windowing::AppendBigEndian32(key, stage);
  key.push_back(static_cast<char>(range >> 8));
  key.push_back(static_cast<char>(range));
  key.push_back(static_cast<char>(kind));
  return key;
}
inline std::string NumberedRow(std::string prefix, uint64_t number) {
  windowing::AppendBigEndian64(prefix, number);
  return prefix;
}
// The first key after all that start with `prefix`.
inline std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

// job: 40 bits, stage: 16, range: 8.
inline storage::ShardId RangeShardId(uint64_t job, uint32_t stage, uint32_t range) {
  return {storage::ShardKind::kRange, job << 24 | uint64_t{stage} << 8 | range};
}
inline uint64_t JobOfShard(const storage::ShardId& shard) { return shard.uid >> 24; }
inline uint32_t StageOfShard(const storage::ShardId& shard) { return shard.uid >> 8 & 0xffff; }
inline uint32_t RangeOfShard(const storage::ShardId& shard) { return shard.uid & 0xff; }

}  // namespace millrace::engine
