// What happens to failed bundles (DESIGN 5).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/task.h"
#include "engine/bundle.h"

namespace millrace::engine {

struct RetryRules {
  bool bounded = true;  // few attempts, then the job fails
  int attempts = 4;
  Duration park_min = std::chrono::seconds(1), park_max = std::chrono::seconds(60);
  size_t parked_max = 100;     // so many parked keys stop the stage
  int failures_in_a_row = 12;  // so many without one success: it is not the elements
};

// The failed bundles of one stage. Bounded: the same bundle again, at once. Unbounded: once again
// as it was, then in halves down to one key (element, pane), which is parked with growing back-off
// while others go on; when everything fails, or too much is parked, the whole stage backs off.
// Single-threaded; owned by its stage. It decides, the dispatcher runs.
class RetryQueue {
 public:
  void SetRules(const RetryRules& rules) { rules_ = rules; }

  // The runner said the elements' work failed. False: the attempts are used up, the job has failed.
  bool Failed(std::unique_ptr<Bundle> bundle, SteadyTime now);
  // The bundle got no answer about its elements (a dead worker).
  void Lost(std::unique_ptr<Bundle> bundle, SteadyTime now);
  // Goes first, with no blame (the rest after a split).
  void Rest(std::unique_ptr<Bundle> bundle) { ready_.push_front(std::move(bundle)); }
  void Succeeded();

  // The next bundle to run again; null if none is due.
  std::unique_ptr<Bundle> Next(SteadyTime now);
  // No new bundle may be cut, and sources stop pulling.
  bool Paused(SteadyTime now) const {
    return now < paused_until_ || parked_.size() >= rules_.parked_max;
  }
  // All times at which Next or Paused may change by themselves.
  void EachTime(FunctionRef<void(std::optional<SteadyTime>)> visit) const;

  size_t parked() const { return parked_.size(); }
  bool empty() const { return ready_.empty() && parked_.empty(); }
  // Takes everything out.
  std::vector<std::unique_ptr<Bundle>> Drain();

 private:
  struct Parked {
    SteadyTime due;
    std::unique_ptr<Bundle> bundle;
  };
  void Park(std::unique_ptr<Bundle> bundle, SteadyTime now);

  RetryRules rules_;
  std::deque<std::unique_ptr<Bundle>> ready_;
  std::vector<Parked> parked_;
  int failures_in_a_row_ = 0, lost_in_a_row_ = 0;
  Duration pause_{};
  SteadyTime paused_until_{INT64_MIN};
};

}  // namespace millrace::engine
