#include "pubsub/subscription/redelivery.h"

namespace millrace::pubsub {
namespace {

constexpr uint64_t kGapMax = 16;  // read over so many messages rather than read twice
constexpr uint64_t kStretchMax = 1024;

}  // namespace

bool RedeliveryQueue::Remove(uint64_t offset, uint32_t* size) {
  auto it = waiting_.find(offset);
  if (it == waiting_.end()) return false;
  *size = it->second;
  waiting_.erase(it);
  return true;
}

void RedeliveryQueue::RemoveRange(uint64_t first, uint64_t end) {
  waiting_.erase(waiting_.lower_bound(first), waiting_.lower_bound(end));
}

uint64_t RedeliveryQueue::StretchEnd() const {
  uint64_t first = First(), end = first + 1;
  for (auto it = std::next(waiting_.begin()); it != waiting_.end(); ++it) {
    if (it->first > end + kGapMax || it->first >= first + kStretchMax) break;
    end = it->first + 1;
  }
  return end;
}

}  // namespace millrace::pubsub
