#include "base/clock.h"

namespace millrace {

SteadyTime SystemClock::SteadyNow() const {
  return {std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

WallTime SystemClock::WallNow() const {
  return {std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

}  // namespace millrace
