// Time comes in through a Clock, so that tests and the simulator own it. Wall time only for publish
// times, retention and tokens; everything that waits (leases, timers, back-off) uses steady time.
#pragma once

#include <chrono>
#include <cstdint>

namespace millrace {

using Duration = std::chrono::microseconds;
struct SteadyTag {};
// Microseconds since an arbitrary start; never goes back; means nothing after a restart.
struct SteadyTime {
  int64_t micros = 0;
  friend auto operator<=>(SteadyTime, SteadyTime) = default;
  friend SteadyTime operator+(SteadyTime t, Duration d) { return {t.micros + d.count()}; }
  friend Duration operator-(SteadyTime a, SteadyTime b) { return Duration(a.micros - b.micros); }
  static constexpr SteadyTime Max() { return {INT64_MAX}; }
};
// Microseconds since the Unix epoch; may jump.
struct WallTime {
  int64_t micros = 0;
  friend auto operator<=>(WallTime, WallTime) = default;
  friend WallTime operator+(WallTime t, Duration d) { return {t.micros + d.count()}; }
  friend WallTime operator-(WallTime t, Duration d) { return {t.micros - d.count()}; }
  friend Duration operator-(WallTime a, WallTime b) { return Duration(a.micros - b.micros); }
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime SteadyNow() const = 0;
  virtual WallTime WallNow() const = 0;
};

// The machine's clocks.
class SystemClock : public Clock {
 public:
  SteadyTime SteadyNow() const override;
  WallTime WallNow() const override;
};

}  // namespace millrace
