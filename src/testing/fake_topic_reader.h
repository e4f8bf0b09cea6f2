// A topic partition that a test fills, for tests of subscriptions without a topic.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pubsub/topic/topic_reader.h"

namespace millrace::testing {

// Not thread-safe: all on the test's thread. Messages are committed when published. Reads fail over
// to "disk" (a post) where the test says that memory does not hold a message.
class FakeTopicReader : public pubsub::TopicReader {
 public:
  explicit FakeTopicReader(const Clock& clock) : clock_(clock) {}

  // The new message's offset.
  uint64_t Publish(std::string wire) {
    messages_.push_back({messages_.size(), clock_.WallNow(), SharedBytes(std::move(wire))});
    return messages_.size() - 1;
  }
  // Wakes who waits for growth; apart from Publish, so that a batch is seen as one.
  void Commit() {
    auto waiting = std::exchange(waiting_, {});
    for (auto& [seen, executor, task] : waiting) {
      if (CommittedEnd() > seen) {
        executor->Post(std::move(task));
      } else {
        waiting_.push_back({seen, executor, std::move(task)});
      }
    }
  }
  // Messages below are only on disk.
  void EvictBelow(uint64_t offset) { memory_from_ = offset; }
  // Messages below live no more.
  void LoseBelow(uint64_t offset) { living_from_ = offset; }
  const pubsub::StoredMessage& message(uint64_t offset) const { return messages_[offset]; }
  size_t waiting() const { return waiting_.size(); }
  int memory_reads = 0, disk_reads = 0;

  storage::TopicPartition partition() const override { return {1, 0}; }
  uint64_t CommittedEnd() const override { return messages_.size(); }
  WallTime NoPublishBefore() const override { return clock_.WallNow(); }
  bool TryRead(uint64_t from, uint64_t end, size_t max_bytes,
               std::vector<pubsub::StoredMessage>* out) override {
    if (from < memory_from_) return false;
    ++memory_reads;
    Fill(from, end, max_bytes, out);
    return true;
  }
  void Read(uint64_t from, uint64_t end, size_t max_bytes, Executor& executor,
            Callback<void(StatusOr<std::vector<pubsub::StoredMessage>>)> done) override {
    ++disk_reads;
    std::vector<pubsub::StoredMessage> out;
    Fill(from, end, max_bytes, &out);
    executor.Post(
        [done = std::move(done), out = std::move(out)]() mutable { done(std::move(out)); });
  }
  void WhenGrown(uint64_t seen, Executor& executor, Task task) override {
    if (CommittedEnd() > seen) return executor.Post(std::move(task));
    waiting_.push_back({seen, &executor, std::move(task)});
  }
  void Forget(Executor& executor) override {
    std::erase_if(waiting_, [&](const Waiting& w) { return w.executor == &executor; });
  }

 private:
  struct Waiting {
    uint64_t seen;
    Executor* executor;
    Task task;
  };
  void Fill(uint64_t from, uint64_t end, size_t max_bytes,
            std::vector<pubsub::StoredMessage>* out) {
    size_t bytes = 0;
    end = std::min<uint64_t>(end, messages_.size());
    for (uint64_t o = std::max(from, living_from_); o < end; ++o) {
      bytes += messages_[o].wire.size();
      if (!out->empty() && bytes > max_bytes) break;
      out->push_back(messages_[o]);
    }
  }

  const Clock& clock_;
  std::vector<pubsub::StoredMessage> messages_;
  std::vector<Waiting> waiting_;
  uint64_t memory_from_ = 0, living_from_ = 0;
};

}  // namespace millrace::testing
