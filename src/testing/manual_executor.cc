#include "testing/manual_executor.h"

#include <utility>

namespace millrace::testing {

void ManualExecutor::Post(Task task) {
  MutexLock lock(mutex_);
  queue_.push_back(std::move(task));
}

bool ManualExecutor::RunOne() {
  Task task;
  {
    MutexLock lock(mutex_);
    if (queue_.empty()) return false;
    task = std::move(queue_.front());
    queue_.pop_front();
  }
  task();
  return true;
}

int ManualExecutor::RunAll() {
  int count = 0;
  while (RunOne()) ++count;
  return count;
}

size_t ManualExecutor::queued() const {
  MutexLock lock(mutex_);
  return queue_.size();
}

}  // namespace millrace::testing
