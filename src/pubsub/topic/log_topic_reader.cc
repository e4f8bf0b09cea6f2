#include "pubsub/topic/log_topic_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pubsub/topic/entry_body.h"

namespace millrace::pubsub {
namespace {

// Takes messages out of entries until the bytes are used up.
class MessageCollector {
 public:
  MessageCollector(uint64_t from, uint64_t end, size_t max_bytes, std::vector<StoredMessage>* out)
      : from_(from), end_(end), max_bytes_(max_bytes), out_(out) {}

  // False: no more fit, or the entry lies behind the end, or it is broken.
  bool Take(const storage::TopicEntry& entry) {
    EntryBodyReader reader(entry.body.view());
    std::string_view wire;
    uint64_t offset = entry.first_offset;
    for (; reader.Next(&wire); ++offset) {
      if (offset < from_) continue;
      if (offset >= end_) {
        partly_ = offset > entry.first_offset;
        return false;
      }
      if (!out_->empty() && bytes_ + wire.size() > max_bytes_) {
        partly_ = offset > entry.first_offset;
        return false;
      }
      bytes_ += wire.size();
      out_->push_back({offset, entry.publish_time, entry.body.Sub(wire)});
    }
    broken_ = !reader.ok() || offset != entry.first_offset + entry.count;
    return !broken_ && bytes_ < max_bytes_;
  }
  // The last entry taken has messages left.
  bool partly() const { return partly_; }
  bool broken() const { return broken_; }

 private:
  const uint64_t from_, end_;
  const size_t max_bytes_;
  std::vector<StoredMessage>* const out_;
  size_t bytes_ = 0;
  bool partly_ = false;
  bool broken_ = false;
};

}  // namespace

LogTopicReader::LogTopicReader(storage::TopicPartition partition, storage::CommitLog& log,
                               const Clock& clock, Executor& blocking)
    : partition_(partition), log_(log), clock_(clock), blocking_(blocking) {}

WallTime LogTopicReader::Now() const { return {clock_.WallNow().micros / 1000 * 1000}; }

void LogTopicReader::Recover(uint64_t committed_end, WallTime last_stamp) {
  committed_end_.store(committed_end, std::memory_order_release);
  MutexLock lock(mutex_);
  floor_ = last_stamp;
}

WallTime LogTopicReader::BeginPublish() {
  MutexLock lock(mutex_);
  floor_ = std::max(floor_, Now());
  pending_stamps_.push_back(floor_);
  return floor_;
}

void LogTopicReader::EndPublish(uint64_t end) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    MR_CHECK(!pending_stamps_.empty() && end > CommittedEnd());
    pending_stamps_.pop_front();
    committed_end_.store(end, std::memory_order_release);
    waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters) waiter.executor->Post(std::move(waiter.task));
}

WallTime LogTopicReader::NoPublishBefore() const {
  MutexLock lock(mutex_);
  if (!pending_stamps_.empty()) return pending_stamps_.front();
  floor_ = std::max(floor_, Now());
  return floor_;
}

bool LogTopicReader::TryRead(uint64_t from, uint64_t end, size_t max_bytes,
                             std::vector<StoredMessage>* out) {
  out->clear();
  end = std::min(end, CommittedEnd());
  if (from >= end) return true;
  if (TryPartlyRead(from, end, max_bytes, out)) return true;
  std::vector<storage::TopicEntry> entries;
  if (!log_.TryReadEntries(partition_, from, max_bytes, &entries)) return false;
  MessageCollector collector(from, end, max_bytes, out);
  for (const storage::TopicEntry& entry : entries) {
    if (!collector.Take(entry)) break;
  }
  return !collector.broken();
}

bool LogTopicReader::TryPartlyRead(uint64_t from, uint64_t end, size_t max_bytes,
                                   std::vector<StoredMessage>* out) {
  storage::TopicEntry found;
  {
    MutexLock lock(mutex_);
    auto it = std::find_if(
        partly_read_.begin(), partly_read_.end(), [from](const storage::TopicEntry& entry) {
          return from >= entry.first_offset && from < entry.first_offset + entry.count;
        });
    if (it == partly_read_.end()) return false;
    found = *it;
  }
  MessageCollector collector(from, end, max_bytes, out);
  collector.Take(found);
  if (collector.partly()) return true;
  MutexLock lock(mutex_);
  std::erase_if(partly_read_, [&](const storage::TopicEntry& entry) {
    return entry.first_offset == found.first_offset;
  });
  return true;
}

StatusOr<std::vector<StoredMessage>> LogTopicReader::ReadBlocking(uint64_t from, uint64_t end,
                                                                  size_t max_bytes) {
  std::vector<StoredMessage> out;
  end = std::min(end, CommittedEnd());
  if (from >= end) return out;
  if (TryPartlyRead(from, end, max_bytes, &out)) return out;
  MR_ASSIGN_OR_RETURN(std::vector<storage::TopicEntry> entries,
                      log_.ReadEntries(partition_, from, max_bytes));
  MessageCollector collector(from, end, max_bytes, &out);
  for (const storage::TopicEntry& entry : entries) {
    if (collector.Take(entry)) continue;
    if (collector.broken()) {
      return DataLoss(fmt::format(
          "The entry at offset {} of topic {} is damaged: its body does not hold {} messages.",
          entry.first_offset, partition_.topic_uid, entry.count));
    }
    if (collector.partly()) KeepPartlyRead(entry);
    break;
  }
  return out;
}

void LogTopicReader::KeepPartlyRead(const storage::TopicEntry& entry) {
  MutexLock lock(mutex_);
  if (partly_read_.size() == kPartlyReadMax) partly_read_.pop_front();
  partly_read_.push_back(entry);
}

void LogTopicReader::Read(uint64_t from, uint64_t end, size_t max_bytes, Executor& executor,
                          Callback<void(StatusOr<std::vector<StoredMessage>>)> done) {
  blocking_.Post([self = shared_from_this(), from, end, max_bytes, &executor,
                  done = std::move(done)]() mutable {
    auto messages = self->ReadBlocking(from, end, max_bytes);
    executor.Post([done = std::move(done), messages = std::move(messages)]() mutable {
      done(std::move(messages));
    });
  });
}

void LogTopicReader::WhenGrown(uint64_t seen, Executor& executor, Task task) {
  {
    MutexLock lock(mutex_);
    if (CommittedEnd() <= seen) {
      waiters_.push_back({&executor, std::move(task)});
      return;
    }
  }
  executor.Post(std::move(task));
}

void LogTopicReader::Forget(Executor& executor) {
  std::vector<Waiter> dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  auto kept = std::stable_partition(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    return waiter.executor != &executor;
  });
  std::move(kept, waiters_.end(), std::back_inserter(dropped));
  waiters_.erase(kept, waiters_.end());
}

}  // namespace millrace::pubsub
