// What of a topic partition a subscription has acked: a cursor, and above it blocks of 65,536
// offsets.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/task.h"
#include "pubsub/subscription/ack_set.h"

namespace millrace::pubsub {

// Every offset is acked or not; acks are never taken back here. Blocks in which nothing is acked
// cost a null pointer, blocks wholly below the cursor nothing. Blocks are copy-on-write: who holds
// a Share (a snapshot) sees them unchanged. Belongs to one subscription shard and its executor.
// Knows neither leases nor messages.
class AckBlocks {
 public:
  static constexpr uint64_t kBlock = AckSet::kSize;

  // Everything below `start` counts as acked.
  explicit AckBlocks(uint64_t start);

  // First unacked offset.
  uint64_t cursor() const { return cursor_; }
  // One past the highest acked offset; at least the cursor.
  uint64_t acked_end() const { return acked_end_; }
  bool IsAcked(uint64_t offset) const;
  // First unacked offset ≥ from.
  uint64_t NextUnacked(uint64_t from) const;
  // First acked offset in [from, end), or end.
  uint64_t NextAcked(uint64_t from, uint64_t end) const;
  uint64_t CountUnacked(uint64_t first, uint64_t end) const;

  // Acks [first, first + count); `newly` gets the ranges that were not acked before, in order.
  void Ack(uint64_t first, uint64_t count, FunctionRef<void(uint64_t first, uint64_t count)> newly);

  // A block as it is now, unaffected by later acks; null: nothing in it is acked.
  std::shared_ptr<const AckSet> Share(uint64_t block) const;

  // Blocks changed since the last call, ascending; those below the cursor's block are left out.
  std::set<uint64_t> TakeDirty();
  void MarkDirty(uint64_t block) { dirty_.insert(block); }
  // The set of one block in its stored form; empty if nothing in it is acked.
  std::string SerializeBlock(uint64_t block) const;
  // Recovery: cursor first, then blocks.
  void RestoreCursor(uint64_t cursor);
  bool RestoreBlock(uint64_t block, std::string_view bytes);

 private:
  AckSet& Writable(uint64_t block);
  const AckSet* Find(uint64_t block) const;
  void AdvanceCursor();

  uint64_t cursor_;
  uint64_t acked_end_;
  uint64_t base_;  // index of blocks_[0]: the cursor's block
  std::deque<std::shared_ptr<AckSet>> blocks_;
  std::set<uint64_t> dirty_;
};

}  // namespace millrace::pubsub
