// A commit log whose groups become durable when a test says so.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "storage/commit_log.h"

namespace millrace::testing {

// Not thread-safe: all on the test's thread. Keeps records only (no entries). Replay gives what is
// durable.
class ManualLog : public storage::CommitLog {
 public:
  void Append(std::vector<storage::Record> records, Task on_durable) override {
    pending_.push_back({std::move(records), std::move(on_durable)});
  }
  // Makes the oldest appends durable. Returns how many.
  size_t CommitSome(size_t appends) {
    size_t done = 0;
    for (; done < appends && !pending_.empty(); ++done) {
      Pending first = std::move(pending_.front());
      pending_.pop_front();
      for (storage::Record& record : first.records) durable_.push_back(std::move(record));
      if (first.on_durable) first.on_durable();
    }
    return done;
  }
  size_t Commit() { return CommitSome(pending_.size()); }
  // Forgets what is not durable.
  void Crash() { pending_.clear(); }
  const std::vector<storage::Record>& durable() const { return durable_; }
  size_t pending() const { return pending_.size(); }
  // Benchmarks would only fill memory.
  void DropDurable() { durable_.clear(); }

  bool HasRoomToGrow() const override { return true; }
  Status Replay(storage::Lsn from,
                FunctionRef<Status(storage::Lsn, const storage::Record&)> visit) override {
    for (size_t i = from; i < durable_.size(); ++i) MR_RETURN_IF_ERROR(visit(i, durable_[i]));
    return OkStatus();
  }
  StatusOr<std::vector<storage::TopicEntry>> ReadEntries(storage::TopicPartition, uint64_t,
                                                         size_t) override {
    return std::vector<storage::TopicEntry>();
  }
  bool TryReadEntries(storage::TopicPartition, uint64_t, size_t,
                      std::vector<storage::TopicEntry>*) override {
    return false;
  }
  void TruncateBefore(storage::Lsn) override {}
  void SetLiveness(std::shared_ptr<storage::Liveness>) override {}
  void MayHaveDied() override {}
  storage::LogStats Stats() const override { return {durable_.size()}; }
  void Close() override { Commit(); }

 private:
  struct Pending {
    std::vector<storage::Record> records;
    Task on_durable;
  };
  std::deque<Pending> pending_;
  std::vector<storage::Record> durable_;
};

}  // namespace millrace::testing
