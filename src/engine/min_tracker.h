// The smallest of many timestamps that come and go: pending elements, holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "windowing/types.h"

namespace millrace::engine {

class MinTracker {
 public:
  void Add(windowing::Millis time, uint64_t count = 1) { counts_[time] += count; }
  // REQUIRES that it was added.
  void Remove(windowing::Millis time, uint64_t count = 1) {
    auto it = counts_.find(time);
    if (it == counts_.end()) return;
    if (it->second <= count) {
      counts_.erase(it);
    } else {
      it->second -= count;
    }
  }
  bool empty() const { return counts_.empty(); }
  std::optional<windowing::Millis> Min() const {
    if (counts_.empty()) return std::nullopt;
    return counts_.begin()->first;
  }

 private:
  std::map<windowing::Millis, uint64_t> counts_;
};

}  // namespace millrace::engine
