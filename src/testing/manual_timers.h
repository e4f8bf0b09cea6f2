// Timers that fire when a test says so, by a clock the test moves.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/timer.h"

namespace millrace::testing {

// Thread-safe; `clock` outlives it.
class ManualTimers : public Timers {
 public:
  explicit ManualTimers(const Clock& clock) : clock_(clock) {}

  TimerId At(SteadyTime when, Executor& executor, Task task) override;
  bool Cancel(TimerId id) override;

  // Posts everything due by the clock to its executor, in order of time. Returns how many.
  int RunDue();
  // Forgets all of them, as the end of a process does.
  void Clear();
  // When the next one is due.
  std::optional<SteadyTime> Next() const;

 private:
  struct Entry {
    Executor* executor;
    Task task;
  };
  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::pair<SteadyTime, TimerId>, Entry> entries_ MR_GUARDED_BY(mutex_);
  TimerId next_id_ MR_GUARDED_BY(mutex_) = 1;
};

}  // namespace millrace::testing
