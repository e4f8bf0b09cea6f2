#include "testing/manual_timers.h"

namespace millrace::testing {

TimerId ManualTimers::At(SteadyTime when, Executor& executor, Task task) {
  MutexLock lock(mutex_);
  TimerId id = next_id_++;
  entries_.emplace(std::make_pair(when, id), Entry{&executor, std::move(task)});
  return id;
}

bool ManualTimers::Cancel(TimerId id) {
  Task dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->first.second != id) continue;
    dropped = std::move(it->second.task);
    entries_.erase(it);
    return true;
  }
  return false;
}

int ManualTimers::RunDue() {
  int count = 0;
  while (true) {
    Entry due{};
    {
      MutexLock lock(mutex_);
      if (entries_.empty() || entries_.begin()->first.first > clock_.SteadyNow()) return count;
      due = std::move(entries_.begin()->second);
      entries_.erase(entries_.begin());
    }
    due.executor->Post(std::move(due.task));
    ++count;
  }
}

void ManualTimers::Clear() {
  std::map<std::pair<SteadyTime, TimerId>, Entry> dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  dropped.swap(entries_);
}

std::optional<SteadyTime> ManualTimers::Next() const {
  MutexLock lock(mutex_);
  if (entries_.empty()) return std::nullopt;
  return entries_.begin()->first.first;
}

}  // namespace millrace::testing
