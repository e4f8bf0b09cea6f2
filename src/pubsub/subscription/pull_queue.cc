#include "pubsub/subscription/pull_queue.h"

namespace millrace::pubsub {

uint64_t PullQueue::Add(WaitingPull pull) {
  pull.id = next_id_++;
  immediate_ += pull.immediate;
  pulls_.push_back(std::move(pull));
  by_id_.emplace(pulls_.back().id, std::prev(pulls_.end()));
  return pulls_.back().id;
}

WaitingPull* PullQueue::Find(uint64_t id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &*it->second;
}

WaitingPull PullQueue::Take(uint64_t id) {
  auto it = by_id_.find(id);
  WaitingPull pull = std::move(*it->second);
  pulls_.erase(it->second);
  by_id_.erase(it);
  immediate_ -= pull.immediate;
  return pull;
}

std::vector<uint64_t> PullQueue::Immediate() const {
  std::vector<uint64_t> ids;
  if (immediate_ == 0) return ids;
  for (const WaitingPull& pull : pulls_) {
    if (pull.immediate) ids.push_back(pull.id);
  }
  return ids;
}

}  // namespace millrace::pubsub
