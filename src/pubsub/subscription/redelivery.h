// Messages that were out and came back: nacked, expired, or held by a subscriber that went away.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "base/task.h"

namespace millrace::pubsub {

// Unacked, unleased messages that were delivered before, by offset; each is ready as soon as it is
// here. At most as many as may be outstanding, since nothing new is delivered before them. Belongs
// to one subscription shard and its executor.
class RedeliveryQueue {
 public:
  void Add(uint64_t offset, uint32_t size) {
    waiting_.insert_or_assign(waiting_.end(), offset, size);
  }
  // False: not here.
  bool Remove(uint64_t offset, uint32_t* size);
  void RemoveRange(uint64_t first, uint64_t end);
  void Clear() { waiting_.clear(); }

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  // The next to go. Not when empty.
  uint64_t First() const { return waiting_.begin()->first; }
  void PopFirst() { waiting_.erase(waiting_.begin()); }
  // End of a stretch of offsets from First() that is worth one read.
  uint64_t StretchEnd() const;

 private:
  absl::btree_map<uint64_t, uint32_t> waiting_;  // offset → size of the message
};

}  // namespace millrace::pubsub
