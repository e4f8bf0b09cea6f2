// TopicReader over the commit log, and what the topic's shard tells it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "pubsub/topic/topic_reader.h"
#include "storage/commit_log.h"

namespace millrace::pubsub {

// Guarantees: the committed end moves in offset order; stamps never go back; who waits is posted
// once. Thread-safe: it is the one place where a topic meets other threads, so it holds a lock
// (never while calling out). Owned by the topic's shard and by the subscriptions. Does not belong
// here: deciding offsets and ids (TopicShard), caching beyond entries handed out in part (storage).
class LogTopicReader : public TopicReader, public std::enable_shared_from_this<LogTopicReader> {
 public:
  // All outlive it. `blocking` may wait for the disk.
  LogTopicReader(storage::TopicPartition partition, storage::CommitLog& log, const Clock& clock,
                 Executor& blocking);

  // The shard's side. Recover: once, before anything else.
  void Recover(uint64_t committed_end, WallTime last_stamp);
  // The publish time of a publish being decided; every one is followed by its EndPublish, in the
  // same order.
  WallTime BeginPublish();
  // The oldest publish begun is durable; its messages end at `end`. May be called on the log's
  // thread.
  void EndPublish(uint64_t end);

  storage::TopicPartition partition() const override { return partition_; }
  uint64_t CommittedEnd() const override { return committed_end_.load(std::memory_order_acquire); }
  WallTime NoPublishBefore() const override;
  bool TryRead(uint64_t from, uint64_t end, size_t max_bytes,
               std::vector<StoredMessage>* out) override;
  void Read(uint64_t from, uint64_t end, size_t max_bytes, Executor& executor,
            Callback<void(StatusOr<std::vector<StoredMessage>>)> done) override;
  void WhenGrown(uint64_t seen, Executor& executor, Task task) override;
  void Forget(Executor& executor) override;

 private:
  static constexpr size_t kPartlyReadMax = 4;
  struct Waiter {
    Executor* executor;
    Task task;
  };

  // Milliseconds, as the service has them.
  WallTime Now() const;
  bool TryPartlyRead(uint64_t from, uint64_t end, size_t max_bytes,
                     std::vector<StoredMessage>* out);
  StatusOr<std::vector<StoredMessage>> ReadBlocking(uint64_t from, uint64_t end, size_t max_bytes);
  void KeepPartlyRead(const storage::TopicEntry& entry);

  const storage::TopicPartition partition_;
  storage::CommitLog& log_;
  const Clock& clock_;
  Executor& blocking_;
  std::atomic<uint64_t> committed_end_{0};

  mutable Mutex mutex_;
  mutable WallTime floor_ MR_GUARDED_BY(mutex_);
  std::deque<WallTime> pending_stamps_ MR_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ MR_GUARDED_BY(mutex_);
  // Entries from disk of which only a part fitted into an answer: the next Read need not fetch them
  // again.
  std::deque<storage::TopicEntry> partly_read_ MR_GUARDED_BY(mutex_);
};

}  // namespace millrace::pubsub
