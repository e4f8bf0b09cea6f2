#include "base/timer.h"

#include <pthread.h>

#include <utility>

namespace millrace {

ThreadTimers::ThreadTimers(const Clock& clock) : clock_(clock), thread_([this] { Work(); }) {
  pthread_setname_np(thread_.native_handle(), "timers");
}

ThreadTimers::~ThreadTimers() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

TimerId ThreadTimers::At(SteadyTime when, Executor& executor, Task task) {
  bool first;
  TimerId id;
  {
    MutexLock lock(mutex_);
    id = next_id_++;
    auto it = entries_.emplace(when, Entry{id, &executor, std::move(task)});
    by_id_[id] = it;
    first = it == entries_.begin();
  }
  if (first) changed_.NotifyOne();
  return id;
}

bool ThreadTimers::Cancel(TimerId id) {
  Task dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  auto it = by_id_.find(id);
  if (it == by_id_.end()) return false;
  dropped = std::move(it->second->second.task);
  entries_.erase(it->second);
  by_id_.erase(it);
  return true;
}

void ThreadTimers::Work() {
  while (true) {
    Entry due{};
    {
      MutexLock lock(mutex_);
      while (true) {
        if (stopped_) return;
        if (entries_.empty()) {
          changed_.Wait(mutex_);
          continue;
        }
        Duration wait = entries_.begin()->first - clock_.SteadyNow();
        if (wait <= Duration(0)) break;
        changed_.WaitFor(mutex_, wait);
      }
      due = std::move(entries_.begin()->second);
      by_id_.erase(due.id);
      entries_.erase(entries_.begin());
    }
    due.executor->Post(std::move(due.task));
  }
}

}  // namespace millrace
