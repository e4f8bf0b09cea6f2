#include "base/executor.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace millrace {

ThreadPool::ThreadPool(int threads, std::string name) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      Work();
    });
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(task));
  }
  ready_.NotifyOne();
}

void ThreadPool::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  ready_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadPool::Work() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopped_) ready_.Wait(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

struct SerialExecutor::Queue {
  explicit Queue(Executor& p) : pool(p) {}

  Executor& pool;
  Mutex mutex;
  std::deque<Task> tasks MR_GUARDED_BY(mutex);
  bool running MR_GUARDED_BY(mutex) = false;
  bool closed MR_GUARDED_BY(mutex) = false;
  std::atomic<std::thread::id> thread{};
};

SerialExecutor::SerialExecutor(Executor& pool) : queue_(std::make_shared<Queue>(pool)) {}

SerialExecutor::~SerialExecutor() {
  std::deque<Task> dropped;
  MutexLock lock(queue_->mutex);
  queue_->closed = true;
  dropped.swap(queue_->tasks);
}

void SerialExecutor::Post(Task task) {
  {
    MutexLock lock(queue_->mutex);
    if (queue_->closed) return;
    queue_->tasks.push_back(std::move(task));
    if (queue_->running) return;
    queue_->running = true;
  }
  queue_->pool.Post([queue = queue_] { Run(queue); });
}

bool SerialExecutor::IsCurrent() const {
  return queue_->thread.load() == std::this_thread::get_id();
}

void SerialExecutor::Run(const std::shared_ptr<Queue>& queue) {
  queue->thread.store(std::this_thread::get_id());
  for (int i = 0;; ++i) {
    Task task;
    {
      MutexLock lock(queue->mutex);
      if (queue->tasks.empty()) {
        queue->running = false;
        queue->thread.store(std::thread::id());
        return;
      }
      if (i == kBatch) break;
      task = std::move(queue->tasks.front());
      queue->tasks.pop_front();
    }
    task();
  }
  queue->thread.store(std::thread::id());
  queue->pool.Post([queue] { Run(queue); });
}

}  // namespace millrace
