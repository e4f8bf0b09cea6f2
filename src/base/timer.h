// Calls that happen later. One Timers object serves a process; tests drive a ManualTimers by a fake
// clock (testing/).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/task.h"

namespace millrace {

using TimerId = uint64_t;  // 0 is never given out

// Thread-safe. A task is posted to its executor at or shortly after its time.
class Timers {
 public:
  virtual ~Timers() = default;
  virtual TimerId At(SteadyTime when, Executor& executor, Task task) = 0;
  // True if the task had not been posted and now never will be. 0 and unknown ids are fine.
  virtual bool Cancel(TimerId id) = 0;
};

// One thread that sleeps until the earliest time.
class ThreadTimers : public Timers {
 public:
  explicit ThreadTimers(const Clock& clock);
  ~ThreadTimers() override;
  TimerId At(SteadyTime when, Executor& executor, Task task) override;
  bool Cancel(TimerId id) override;

 private:
  struct Entry {
    TimerId id;
    Executor* executor;
    Task task;
  };
  void Work();

  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::multimap<SteadyTime, Entry> entries_ MR_GUARDED_BY(mutex_);
  std::unordered_map<TimerId, std::multimap<SteadyTime, Entry>::iterator> by_id_
      MR_GUARDED_BY(mutex_);
  TimerId next_id_ MR_GUARDED_BY(mutex_) = 1;
  bool stopped_ MR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace millrace
