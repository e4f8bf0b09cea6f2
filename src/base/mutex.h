// An annotated std::mutex. Allowed in base, net and storage (and at the gRPC edge, where callbacks
// come on any thread); shards need none. Nobody calls out while holding one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MR_TSA(x) __attribute__((x))
#else
#define MR_TSA(x)
#endif
#define MR_GUARDED_BY(m) MR_TSA(guarded_by(m))
#define MR_REQUIRES(m) MR_TSA(requires_capability(m))
#define MR_EXCLUDES(m) MR_TSA(locks_excluded(m))

namespace millrace {

class MR_TSA(capability("mutex")) Mutex {
 public:
  void Lock() MR_TSA(acquire_capability()) { mutex_.lock(); }
  void Unlock() MR_TSA(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class MR_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MR_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() MR_TSA(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // The caller holds `mutex`; wake-ups may be spurious, so loop on the condition.
  void Wait(Mutex& mutex) MR_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False after `timeout`.
  template <typename Rep, typename Period>
  bool WaitFor(Mutex& mutex, std::chrono::duration<Rep, Period> timeout) MR_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace millrace
