#include "storage/memory_log.h"

#include <gtest/gtest.h>

#include <deque>
#include <future>

#include "storage/checkpoint.h"
#include "storage/memory_store.h"
#include "storage/open.h"

namespace millrace::storage {
namespace {

// Runs what was posted when the test says so.
class HandExecutor : public Executor {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  void RunAll() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
};

Record MakeRecord(uint64_t seq, uint64_t first_offset = 0, uint32_t count = 0, size_t body = 10) {
  Record record{{ShardKind::kTopic, 7}, seq, SharedBytes("payload " + std::to_string(seq)), {}};
  if (count > 0) {
    record.entry = TopicEntry{{7, 0}, first_offset, count, {}, SharedBytes(std::string(body, 'b'))};
  }
  return record;
}

std::vector<Record> One(Record record) {
  std::vector<Record> records;
  records.push_back(std::move(record));
  return records;
}

TEST(MemoryLog, CommitsWhenTheExecutorIsTurnedAndInOrder) {
  HandExecutor executor;
  auto log = MakeMemoryLog(&executor);
  std::vector<int> called;
  log->Append(One(MakeRecord(1, 0, 3)), [&] { called.push_back(1); });
  log->Append({}, [&] { called.push_back(2); });
  EXPECT_TRUE(called.empty());
  EXPECT_TRUE(log->ReadEntries({7, 0}, 0, 100)->empty());
  executor.RunAll();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
  EXPECT_EQ(log->ReadEntries({7, 0}, 2, 100)->size(), 1u);
  EXPECT_TRUE(log->ReadEntries({7, 0}, 3, 100)->empty());
  EXPECT_GT(log->Stats().durable_end, 0u);
}

TEST(MemoryLog, ACrashLosesWhatWasNotCommittedAndReplaysTheRest) {
  HandExecutor executor;
  auto contents = MakeMemoryLogContents();
  auto log = MakeMemoryLog(&executor, contents);
  log->Append(One(MakeRecord(1)), [] {});
  executor.RunAll();
  Lsn second = log->Stats().durable_end;
  log->Append(One(MakeRecord(2)), [] {});
  executor.RunAll();
  bool called = false;
  log->Append(One(MakeRecord(3)), [&] { called = true; });
  log.reset();
  executor.RunAll();
  EXPECT_FALSE(called);
  log = MakeMemoryLog(&executor, contents);
  std::vector<uint64_t> seqs;
  auto visit = [&](Lsn, const Record& record) {
    seqs.push_back(record.seq);
    return OkStatus();
  };
  ASSERT_TRUE(log->Replay(0, visit).ok());
  EXPECT_EQ(seqs, (std::vector<uint64_t>{1, 2}));
  seqs.clear();
  log->TruncateBefore(second);
  ASSERT_TRUE(log->Replay(0, visit).ok());
  EXPECT_EQ(seqs, (std::vector<uint64_t>{2}));
}

class LivesFrom : public Liveness {
 public:
  uint64_t offset = 0;
  void CountLive(std::vector<TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    std::vector<uint32_t> live;
    for (const TopicEntry& entry : entries) {
      live.push_back(entry.first_offset >= offset ? entry.count : 0);
    }
    done(live);
  }
};

TEST(MemoryLog, DropsDeadEntries) {
  HandExecutor executor;
  auto log = MakeMemoryLog(&executor);
  auto liveness = std::make_shared<LivesFrom>();
  log->SetLiveness(liveness);
  for (int i = 0; i < 100; ++i) log->Append(One(MakeRecord(i + 1, i, 1, 100'000)), [] {});
  executor.RunAll();
  EXPECT_EQ(log->Stats().entry_bytes, 10'000'000u);
  liveness->offset = 90;
  log->MayHaveDied();
  executor.RunAll();
  EXPECT_EQ(log->Stats().entry_bytes, 1'000'000u);
  EXPECT_EQ(log->ReadEntries({7, 0}, 0, 1)->front().first_offset, 90u);
}

TEST(MemoryLog, OwnThreadCallsBackAndCloseDrains) {
  auto log = MakeMemoryLog();
  std::promise<void> durable;
  log->Append(One(MakeRecord(1)), [&] { durable.set_value(); });
  durable.get_future().wait();
  int called = 0;
  for (int i = 0; i < 100; ++i) log->Append(One(MakeRecord(i + 2)), [&] { ++called; });
  log->Close();
  EXPECT_EQ(called, 100);
}

// Answers on the executor with the number of its last record.
class CountingShard : public Checkpointed, public std::enable_shared_from_this<CountingShard> {
 public:
  explicit CountingShard(Executor& executor) : executor_(executor) {}
  uint64_t seq = 0;
  bool answers = true;
  void WriteCheckpoint(Callback<void(WriteBatch)> done) override {
    executor_.Post([self = shared_from_this(), done = std::move(done)]() mutable {
      if (!self->answers) return;
      WriteBatch batch;
      batch.Put(Table::kBroker, "seq", std::to_string(self->seq));
      done(std::move(batch));
    });
  }

 private:
  Executor& executor_;
};

TEST(Checkpointer, MovesTheReplayPositionOnlyWhenEveryShardHasAnswered) {
  HandExecutor executor;
  auto contents = MakeMemoryLogContents();
  auto log = MakeMemoryLog(&executor, contents);
  MemoryStore store(true);
  Checkpointer checkpointer(*log, store, {.log_bytes = 100, .executor = &executor});
  auto shard = std::make_shared<CountingShard>(executor);
  checkpointer.MarkDirty(shard);
  for (shard->seq = 1; shard->seq < 10; ++shard->seq) {
    log->Append(One(MakeRecord(shard->seq)), [] {});
  }
  executor.RunAll();
  shard->answers = false;
  Status outcome;
  checkpointer.Run([&](Status status) { outcome = status; });
  executor.RunAll();
  EXPECT_EQ(outcome.code(), StatusCode::kCancelled);
  EXPECT_EQ(*Checkpointer::ReplayPosition(store), 0u);
  shard->answers = true;
  checkpointer.Run([&](Status status) { outcome = status; });
  executor.RunAll();
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(*Checkpointer::ReplayPosition(store), log->Stats().durable_end);
  store.RevertToFlushed();
  EXPECT_EQ(**store.Get(Table::kBroker, "seq", nullptr), "10");
  checkpointer.MayRun();  // has not grown
  executor.RunAll();
  EXPECT_EQ(*Checkpointer::ReplayPosition(store), log->Stats().durable_end);
}

TEST(OpenInMemory, Closes) {
  auto storage = OpenInMemory();
  storage->log->Append(One(MakeRecord(1)), [] {});
  EXPECT_TRUE(storage->Close().ok());
}

}  // namespace
}  // namespace millrace::storage
