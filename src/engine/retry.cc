#include "engine/retry.h"

#include <algorithm>

namespace millrace::engine {

bool RetryQueue::Failed(std::unique_ptr<Bundle> bundle, SteadyTime now) {
  ++bundle->fails;
  lost_in_a_row_ = 0;
  if (rules_.bounded) {
    if (bundle->fails >= rules_.attempts) return false;
    ready_.push_back(std::move(bundle));
    return true;
  }
  ++failures_in_a_row_;
  if (failures_in_a_row_ >= rules_.failures_in_a_row && now >= paused_until_) {
    pause_ = std::clamp(pause_ * 2, rules_.park_min, rules_.park_max);
    paused_until_ = now + pause_;
  }
  if (bundle->fails == 1) {
    ready_.push_front(std::move(bundle));
    return true;
  }
  std::vector<Item> half = CutHalf(bundle->items);
  if (half.empty()) {
    Park(std::move(bundle), now);
    return true;
  }
  auto other = std::make_unique<Bundle>();
  other->stage = bundle->stage;
  other->items = std::move(half);
  other->fails = bundle->fails = 1;  // the next failure halves again
  ready_.push_front(std::move(other));
  ready_.push_front(std::move(bundle));
  return true;
}

void RetryQueue::Park(std::unique_ptr<Bundle> bundle, SteadyTime now) {
  bundle->back_off = std::clamp(bundle->back_off * 2, rules_.park_min, rules_.park_max);
  const SteadyTime due = now + bundle->back_off;
  parked_.push_back({due, std::move(bundle)});
}

// A worker that dies at once again and again must not make a busy loop.
void RetryQueue::Lost(std::unique_ptr<Bundle> bundle, SteadyTime now) {
  ready_.push_front(std::move(bundle));
  if (++lost_in_a_row_ > 3) {
    const Duration pause = std::min<Duration>(std::chrono::milliseconds(50) * (lost_in_a_row_ - 3),
                                              std::chrono::seconds(2));
    paused_until_ = std::max(paused_until_, now + pause);
  }
}

void RetryQueue::Succeeded() {
  failures_in_a_row_ = lost_in_a_row_ = 0;
  pause_ = {};
  paused_until_ = {INT64_MIN};
}

std::unique_ptr<Bundle> RetryQueue::Next(SteadyTime now) {
  if (now < paused_until_) return nullptr;
  auto due = std::min_element(parked_.begin(), parked_.end(),
                              [](const Parked& a, const Parked& b) { return a.due < b.due; });
  if (due != parked_.end() && due->due <= now) {
    std::unique_ptr<Bundle> bundle = std::move(due->bundle);
    parked_.erase(due);
    return bundle;
  }
  if (ready_.empty()) return nullptr;
  std::unique_ptr<Bundle> bundle = std::move(ready_.front());
  ready_.pop_front();
  return bundle;
}

void RetryQueue::EachTime(FunctionRef<void(std::optional<SteadyTime>)> visit) const {
  visit(paused_until_);
  for (const Parked& parked : parked_) visit(parked.due);
}

std::vector<std::unique_ptr<Bundle>> RetryQueue::Drain() {
  std::vector<std::unique_ptr<Bundle>> all;
  for (auto& bundle : ready_) all.push_back(std::move(bundle));
  for (auto& parked : parked_) all.push_back(std::move(parked.bundle));
  ready_.clear();
  parked_.clear();
  return all;
}

}  // namespace millrace::engine
