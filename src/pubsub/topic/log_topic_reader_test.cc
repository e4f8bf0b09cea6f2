#include "pubsub/topic/log_topic_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pubsub/topic/entry_body.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"

namespace millrace::pubsub {
namespace {

using ::testing::ElementsAre;

constexpr storage::TopicPartition kPartition{7, 0};

// Entries that are on disk, and counts what is read from there.
class DiskOnlyLog : public storage::CommitLog {
 public:
  void Put(uint64_t first, const std::vector<std::string>& wires) {
    std::string body;
    for (const std::string& wire : wires) {
      body += kMessageTag;
      body += static_cast<char>(wire.size());
      body += wire;
    }
    entries_[first] = {kPartition, first, static_cast<uint32_t>(wires.size()), WallTime{5},
                       SharedBytes(body)};
  }
  void Damage(uint64_t first) { ++entries_.at(first).count; }

  StatusOr<std::vector<storage::TopicEntry>> ReadEntries(storage::TopicPartition, uint64_t offset,
                                                         size_t max_bytes) override {
    ++reads;
    std::vector<storage::TopicEntry> out;
    size_t bytes = 0;
    for (const auto& [first, entry] : entries_) {
      if (first + entry.count <= offset) continue;
      bytes += entry.body.size();
      if (!out.empty() && bytes > max_bytes) break;
      out.push_back(entry);
    }
    return out;
  }
  bool TryReadEntries(storage::TopicPartition partition, uint64_t offset, size_t max_bytes,
                      std::vector<storage::TopicEntry>* out) override {
    if (!cached) return false;
    *out = *ReadEntries(partition, offset, max_bytes);
    return true;
  }
  void Append(std::vector<storage::Record>, Task) override {}
  bool HasRoomToGrow() const override { return true; }
  Status Replay(storage::Lsn, FunctionRef<Status(storage::Lsn, const storage::Record&)>) override {
    return OkStatus();
  }
  void TruncateBefore(storage::Lsn) override {}
  void SetLiveness(std::shared_ptr<storage::Liveness>) override {}
  void MayHaveDied() override {}
  storage::LogStats Stats() const override { return {}; }
  void Close() override {}

  int reads = 0;
  bool cached = false;

 private:
  std::map<uint64_t, storage::TopicEntry> entries_;
};

class LogTopicReaderTest : public ::testing::Test {
 protected:
  LogTopicReaderTest() { reader_->Recover(100, WallTime{0}); }

  StatusOr<std::vector<std::string>> Read(uint64_t from, uint64_t end, size_t max_bytes) {
    StatusOr<std::vector<std::string>> texts = Internal("no answer");
    reader_->Read(from, end, max_bytes, executor_,
                  [&](StatusOr<std::vector<StoredMessage>> messages) {
                    texts = messages.ok() ? StatusOr<std::vector<std::string>>(Texts(*messages))
                                          : messages.status();
                  });
    blocking_.RunAll();
    executor_.RunAll();
    return texts;
  }
  static std::vector<std::string> Texts(const std::vector<StoredMessage>& messages) {
    std::vector<std::string> texts;
    for (const StoredMessage& message : messages) {
      texts.push_back(std::to_string(message.offset) + std::string(message.wire.view()));
    }
    return texts;
  }

  testing::FakeClock clock_;
  testing::ManualExecutor executor_, blocking_;
  DiskOnlyLog log_;
  std::shared_ptr<LogTopicReader> reader_ =
      std::make_shared<LogTopicReader>(kPartition, log_, clock_, blocking_);
};

TEST_F(LogTopicReaderTest, ReadsWhatLivesInTheRange) {
  log_.Put(10, {"a", "b", "c"});
  log_.Put(20, {"d"});
  EXPECT_THAT(*Read(0, 100, 1000), ElementsAre("10a", "11b", "12c", "20d"));
  EXPECT_THAT(*Read(11, 12, 1000), ElementsAre("11b"));
  EXPECT_THAT(*Read(13, 20, 1000), ElementsAre());
  EXPECT_THAT(*Read(21, 100, 1000), ElementsAre());
  // Nothing behind the committed end.
  reader_->Recover(11, WallTime{0});
  EXPECT_THAT(*Read(0, 100, 1000), ElementsAre("10a"));
}

TEST_F(LogTopicReaderTest, AnEntryReadInPartsIsFetchedOnce) {
  log_.Put(10, {"aaaa", "bbbb", "cccc"});
  EXPECT_THAT(*Read(10, 100, 8), ElementsAre("10aaaa", "11bbbb"));
  EXPECT_EQ(log_.reads, 1);
  std::vector<StoredMessage> rest;
  EXPECT_TRUE(reader_->TryRead(12, 100, 8, &rest));
  EXPECT_THAT(Texts(rest), ElementsAre("12cccc"));
  EXPECT_EQ(log_.reads, 1);
  // Used up, it is let go.
  EXPECT_FALSE(reader_->TryRead(12, 100, 8, &rest));
  // One message is given however large it is.
  EXPECT_THAT(*Read(10, 100, 1), ElementsAre("10aaaa"));
}

TEST_F(LogTopicReaderTest, FromMemoryWithoutTheDisk) {
  log_.Put(10, {"a", "b"});
  std::vector<StoredMessage> messages;
  EXPECT_FALSE(reader_->TryRead(10, 100, 100, &messages));
  log_.cached = true;
  EXPECT_TRUE(reader_->TryRead(11, 100, 100, &messages));
  EXPECT_THAT(Texts(messages), ElementsAre("11b"));
  EXPECT_TRUE(reader_->TryRead(100, 100, 100, &messages));
  EXPECT_TRUE(messages.empty());
}

TEST_F(LogTopicReaderTest, ADamagedEntryIsReported) {
  log_.Put(10, {"a", "b"});
  log_.Damage(10);
  EXPECT_EQ(Read(10, 100, 100).status().code(), StatusCode::kDataLoss);
}

TEST_F(LogTopicReaderTest, WhoWaitsIsPostedOnce) {
  int woken = 0;
  reader_->WhenGrown(99, executor_, [&] { ++woken; });
  executor_.RunAll();
  EXPECT_EQ(woken, 1);  // at once
  reader_->WhenGrown(100, executor_, [&] { ++woken; });
  testing::ManualExecutor other;
  reader_->WhenGrown(100, other, [&] { woken += 100; });
  reader_->Forget(other);
  reader_->BeginPublish();
  reader_->EndPublish(101);
  reader_->BeginPublish();
  reader_->EndPublish(102);
  executor_.RunAll();
  other.RunAll();
  EXPECT_EQ(woken, 2);
}

TEST_F(LogTopicReaderTest, StampsNeverGoBackAndHoldTheFloor) {
  WallTime start = clock_.WallNow();
  WallTime first = reader_->BeginPublish();
  EXPECT_EQ(first, start);
  clock_.Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(reader_->NoPublishBefore(), first);  // pending
  WallTime second = reader_->BeginPublish();
  EXPECT_EQ(second, start + std::chrono::milliseconds(5));
  reader_->EndPublish(101);
  EXPECT_EQ(reader_->NoPublishBefore(), second);
  reader_->EndPublish(102);
  clock_.Advance(std::chrono::microseconds(1500));
  WallTime floor = reader_->NoPublishBefore();
  EXPECT_EQ(floor, start + std::chrono::milliseconds(6));
  clock_.SetWall(start - std::chrono::hours(1));
  EXPECT_EQ(reader_->NoPublishBefore(), floor);
  EXPECT_EQ(reader_->BeginPublish(), floor);
}

}  // namespace
}  // namespace millrace::pubsub
