// An executor whose tasks run when a test says so, on the test's thread. SerialExecutors stand on
// it as on a pool.
#pragma once

#include <deque>

#include "base/executor.h"
#include "base/mutex.h"

namespace millrace::testing {

// Post is thread-safe (a log's thread may call it); RunOne and RunAll belong to one thread and do
// not nest.
class ManualExecutor : public Executor {
 public:
  void Post(Task task) override;
  // False: nothing was queued.
  bool RunOne();
  // Until the queue is empty, what the tasks post included. Returns how many ran.
  int RunAll();
  size_t queued() const;

 private:
  mutable Mutex mutex_;
  std::deque<Task> queue_ MR_GUARDED_BY(mutex_);
};

}  // namespace millrace::testing
