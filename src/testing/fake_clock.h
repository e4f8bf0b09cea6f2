// Time that only a test moves.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace millrace::testing {

// Thread-safe. Steady and wall time move together by Advance; SetWall makes the wall clock jump
// alone.
class FakeClock : public Clock {
 public:
  // 2026-01-01T00:00:00Z unless told.
  explicit FakeClock(WallTime wall = {1'767'225'600'000'000}) : wall_(wall.micros) {}

  SteadyTime SteadyNow() const override { return {steady_.load()}; }
  WallTime WallNow() const override { return {wall_.load()}; }

  void Advance(Duration by) {
    steady_ += by.count();
    wall_ += by.count();
  }
  void SetWall(WallTime wall) { wall_ = wall.micros; }

 private:
  std::atomic<int64_t> steady_{1'000'000};
  std::atomic<int64_t> wall_;
};

}  // namespace millrace::testing
