// Unary pulls that wait for messages, first come, first served.
#pragma once

#include <cstdint>
#include <list>

#include "absl/container/flat_hash_map.h"
#include "base/timer.h"
#include "pubsub/broker.h"

namespace millrace::pubsub {

struct WaitingPull {
  uint64_t id = 0;
  uint32_t max_messages = 0;
  bool immediate = false;  // answered empty rather than left waiting
  TimerId timer = 0;
  Reply<std::vector<Delivery>> reply;
};

// Belongs to one subscription shard and its executor. Sets no timers itself.
class PullQueue {
 public:
  static constexpr uint32_t kMessagesMax = 1000;
  static constexpr size_t kBytesMax = 10'000'000;

  // The pull's id.
  uint64_t Add(WaitingPull pull);
  WaitingPull* Find(uint64_t id);
  bool empty() const { return pulls_.empty(); }
  size_t size() const { return pulls_.size(); }
  WaitingPull& Front() { return pulls_.front(); }
  // Takes one out; its id must be in the queue.
  WaitingPull Take(uint64_t id);
  // Ids of those that must not wait.
  std::vector<uint64_t> Immediate() const;

 private:
  uint64_t next_id_ = 1;
  size_t immediate_ = 0;
  std::list<WaitingPull> pulls_;
  absl::flat_hash_map<uint64_t, std::list<WaitingPull>::iterator> by_id_;
};

}  // namespace millrace::pubsub
