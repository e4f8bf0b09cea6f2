// Where work runs. A shard lives on a SerialExecutor: its tasks run one at a time, in order, on
// some thread of a pool.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/task.h"

namespace millrace {

// Thread-safe. Post never runs the task in the caller's stack.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
};

// A fixed number of threads over one queue. The destructor runs what is queued, then joins.
class ThreadPool : public Executor {
 public:
  ThreadPool(int threads, std::string name);
  ~ThreadPool() override;
  void Post(Task task) override;
  // Runs what is queued, then joins; later posts are dropped. Idempotent.
  void Stop();

 private:
  void Work();

  Mutex mutex_;
  CondVar ready_;
  std::deque<Task> queue_ MR_GUARDED_BY(mutex_);
  bool stopped_ MR_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Runs its tasks one at a time and in order on `pool`, up to kBatch a turn so that no shard starves
// others. Tasks keep the executor's queue alive, not the executor: destroying it drops tasks that
// have not begun.
class SerialExecutor : public Executor {
 public:
  explicit SerialExecutor(Executor& pool);
  ~SerialExecutor() override;
  void Post(Task task) override;
  // True on a thread that is running one of this executor's tasks; shards CHECK it in debug builds.
  bool IsCurrent() const;

 private:
  static constexpr int kBatch = 64;
  struct Queue;
  static void Run(const std::shared_ptr<Queue>& queue);

  std::shared_ptr<Queue> queue_;
};

}  // namespace millrace
