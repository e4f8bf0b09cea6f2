// Sums over the unacked messages of each block: bytes, and the span of publish times.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>

#include "pubsub/subscription/ack_blocks.h"
#include "pubsub/subscription/records.h"
#include "pubsub/types.h"

namespace millrace::pubsub {

struct BlockSummary {
  uint64_t bytes = 0;  // unacked messages
  // Of all messages counted, acked or not.
  WallTime publish_min{INT64_MAX}, publish_max{INT64_MIN};
  bool stale = false;  // `bytes` is wrong: a message of unknown size was acked
};

// A message is counted once, in the order of offsets, when the shard first reads it; acks of
// counted messages are subtracted with the sizes that leases know. Where a size is not known the
// block is stale until it is counted anew. Belongs to one subscription shard and its executor.
// Reads nothing itself.
class BlockSummaries {
 public:
  explicit BlockSummaries(uint64_t start) : base_(start / AckBlocks::kBlock), counted_end_(start) {}

  // Messages below are counted.
  uint64_t counted_end() const { return counted_end_; }
  // `message` is the next living one at or after counted_end().
  void Count(const StoredMessage& message, bool acked);
  // Nothing uncounted lives below `offset`.
  void SkipTo(uint64_t offset);
  // A run of one block, acked just now, not acked before.
  void OnAcked(const AckedRun& run);
  // Blocks wholly below the cursor are of no interest any more.
  void OnCursor(uint64_t cursor);

  // Unacked and counted; exact when nothing is stale.
  uint64_t bytes() const { return bytes_; }
  const BlockSummary* Find(uint64_t block) const;

  // Counting a stale block anew: begin, which says how far to read, then its unacked messages in
  // order, then end.
  bool HasStale() const { return !stale_.empty(); }
  uint64_t FirstStale() const { return *stale_.begin(); }
  uint64_t BeginRecount(uint64_t block);
  void Recount(uint64_t offset, uint64_t size);  // an unacked message
  void RecountedTo(uint64_t offset) { recount_position_ = offset; }
  void EndRecount();

  std::set<uint64_t> TakeDirty();
  void AppendTo(uint64_t block, std::string* out) const;
  bool RestoreBlock(uint64_t block, std::string_view bytes);
  void RestoreEnd(uint64_t counted_end, uint64_t cursor);

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  BlockSummary& At(uint64_t block);
  void MarkStale(uint64_t block);

  uint64_t base_;
  std::deque<BlockSummary> blocks_;
  uint64_t counted_end_;
  uint64_t bytes_ = 0;
  std::set<uint64_t> stale_;
  uint64_t recount_block_ = kNone;
  uint64_t recount_position_ = 0;  // in that block, messages below are counted
  uint64_t recount_end_ = 0;       // messages at or past it are counted as they come
  std::set<uint64_t> dirty_;
};

}  // namespace millrace::pubsub
