#include "storage/commit_log/disk_log.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <numeric>
#include <set>

#include "storage/commit_log/crc32c.h"
#include "testing/faulty_files.h"

namespace millrace::storage {
namespace {

using testing::FaultyFiles;

Record MakeRecord(uint64_t seq, std::optional<TopicEntry> entry = std::nullopt) {
  return {{ShardKind::kTopic, 7}, seq, SharedBytes("payload " + std::to_string(seq)), entry};
}

TopicEntry MakeEntry(uint64_t topic, uint64_t first_offset, uint32_t count, size_t size) {
  std::string body(size, static_cast<char>('a' + first_offset % 26));
  return {{topic, 0}, first_offset, count, {1'000'000 + int64_t(first_offset)}, SharedBytes(body)};
}

class DiskLogTest : public ::testing::Test {
 protected:
  void Open(Lsn replay_position = 0) {
    DiskLogOptions options = options_;
    options.directory = "/log";
    options.files = files_;
    options.replay_position = replay_position;
    auto opened = OpenDiskLog(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    log_ = *std::move(opened);
  }
  Status TryOpen() {
    log_.reset();
    DiskLogOptions options = options_;
    options.directory = "/log";
    options.files = files_;
    return OpenDiskLog(options).status();
  }
  // Appends and waits.
  void Append(Record record) {
    std::vector<Record> records;
    records.push_back(std::move(record));
    std::promise<void> durable;
    log_->Append(std::move(records), [&] { durable.set_value(); });
    durable.get_future().wait();
  }
  void Barrier() {
    std::promise<void> durable;
    log_->Append({}, [&] { durable.set_value(); });
    durable.get_future().wait();
  }
  void Crash() {
    files_->CrashNow();
    log_.reset();
    files_->Restart();
  }
  std::vector<uint64_t> ReplaySeqs(Lsn from = 0) {
    std::vector<uint64_t> seqs;
    Status status = log_->Replay(from, [&](Lsn, const Record& record) {
      seqs.push_back(record.seq);
      return OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return seqs;
  }
  std::vector<uint64_t> Offsets(uint64_t topic, uint64_t from, size_t max_bytes = 1 << 30) {
    std::vector<uint64_t> out;
    auto entries = log_->ReadEntries({topic, 0}, from, max_bytes);
    EXPECT_TRUE(entries.ok()) << entries.status();
    if (!entries.ok()) return out;
    for (const TopicEntry& entry : *entries) {
      EXPECT_EQ(entry.body.view(),
                MakeEntry(topic, entry.first_offset, entry.count, entry.body.size()).body.view());
      EXPECT_EQ(entry.publish_time.micros, 1'000'000 + int64_t(entry.first_offset));
      out.push_back(entry.first_offset);
    }
    return out;
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  std::shared_ptr<FaultyFiles> files_ = std::make_shared<FaultyFiles>(1);
  DiskLogOptions options_{.segment_bytes = 64 << 10};
  std::unique_ptr<DiskLog> log_;
};

TEST(Crc32c, KnownAnswer) {
  EXPECT_EQ(ExtendCrc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(ExtendCrc32c(ExtendCrc32c(0, "1234"), "56789"), 0xe3069283u);
}

TEST_F(DiskLogTest, ReplaysWhatWasAcknowledged) {
  Open();
  for (int i = 1; i <= 10; ++i) Append(MakeRecord(i));
  Barrier();  // the callbacks of the last group have returned
  Lsn middle = log_->Stats().durable_end;
  for (int i = 11; i <= 20; ++i) Append(MakeRecord(i, MakeEntry(7, i, 1, 5000)));
  Crash();
  Open();
  std::vector<uint64_t> all(20);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(ReplaySeqs(), all);
  EXPECT_EQ(ReplaySeqs(middle), std::vector<uint64_t>(all.begin() + 10, all.end()));
  Append(MakeRecord(21));
  log_->Close();
  log_.reset();
  Open();
  all.push_back(21);
  EXPECT_EQ(ReplaySeqs(), all);
}

TEST_F(DiskLogTest, ReadsEntriesFromMemoryAndDisk) {
  for (size_t cache : {size_t{1}, size_t{64} << 20}) {
    files_ = std::make_shared<FaultyFiles>(1);
    options_.entry_cache_bytes = cache;
    Open();
    // Three messages an entry, two topics in turn, several segments.
    for (int i = 0; i < 100; ++i) {
      Append(MakeRecord(2 * i + 1, MakeEntry(1, i * 3, 3, 1000 + i * 37)));
      Append(MakeRecord(2 * i + 2, MakeEntry(2, i * 3, 3, 100)));
    }
    for (int pass = 0; pass < 2; ++pass) {
      EXPECT_EQ(Offsets(1, 0).size(), 100u);
      EXPECT_EQ(Offsets(2, 0).size(), 100u);
      EXPECT_EQ(Offsets(1, 31, 1), std::vector<uint64_t>{30});
      EXPECT_EQ(Offsets(1, 299), std::vector<uint64_t>{297});
      EXPECT_TRUE(Offsets(1, 300).empty());
      EXPECT_TRUE(Offsets(3, 0).empty());
      std::vector<TopicEntry> none;
      EXPECT_TRUE(log_->TryReadEntries({1, 0}, 300, 1, &none));
      EXPECT_EQ(Offsets(2, 0, 1000).size(), 10u);
      Crash();
      Open();
    }
    log_.reset();
  }
}

TEST_F(DiskLogTest, AnEntryLargerThanASegmentHasItsOwn) {
  Open();
  Append(MakeRecord(1, MakeEntry(1, 0, 1, 300'000)));
  Append(MakeRecord(2, MakeEntry(1, 1, 1, 10)));
  Crash();
  Open();
  EXPECT_EQ(Offsets(1, 0), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(ReplaySeqs(), (std::vector<uint64_t>{1, 2}));
}

class ModelLiveness : public Liveness {
 public:
  void CountLive(std::vector<TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    std::vector<uint32_t> live;
    {
      std::lock_guard lock(mutex_);
      for (const TopicEntry& entry : entries) {
        bool alive = all_alive_below_ > entry.first_offset ||
                     alive_.contains({entry.partition.topic_uid, entry.first_offset});
        live.push_back(alive ? entry.count : 0);
      }
    }
    done(std::move(live));
  }
  void KeepOnly(std::set<std::pair<uint64_t, uint64_t>> alive) {
    std::lock_guard lock(mutex_);
    alive_ = std::move(alive);
    all_alive_below_ = 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<uint64_t, uint64_t>> alive_;
  uint64_t all_alive_below_ = UINT64_MAX;
};

TEST_F(DiskLogTest, FreesWhatIsDeadAndMovesTheLittleThatLives) {
  options_.entry_cache_bytes = 1;
  options_.reclaim.growth_bytes = 1;
  options_.reclaim.idle_pause = std::chrono::milliseconds(1);
  Open();
  auto liveness = std::make_shared<ModelLiveness>();
  log_->SetLiveness(liveness);
  for (int i = 0; i < 400; ++i) Append(MakeRecord(i + 1, MakeEntry(1 + i % 3, i, 1, 2000)));
  Barrier();
  Lsn end = log_->Stats().durable_end;
  uint64_t before = log_->Stats().disk_bytes;
  EXPECT_GT(before, 800'000u);
  log_->TruncateBefore(end);
  log_->MayHaveDied();
  EXPECT_EQ(Offsets(1, 0).size(), 134u);
  liveness->KeepOnly({{1, 3}, {2, 100}, {3, 200}, {3, 203}});
  log_->MayHaveDied();
  EXPECT_TRUE(Eventually([&] {
    log_->MayHaveDied();
    return log_->Stats().disk_bytes <= 3 * (64 << 10) && Offsets(1, 0).front() == 3 &&
           Offsets(2, 0).front() == 100 && Offsets(3, 201).front() == 203;
  })) << log_->Stats().disk_bytes;
  EXPECT_EQ(Offsets(1, 0).front(), 3u);
  EXPECT_EQ(Offsets(2, 0).front(), 100u);
  EXPECT_EQ(Offsets(3, 201).front(), 203u);
  Crash();
  Open(end);
  EXPECT_EQ(Offsets(1, 0).front(), 3u);
  EXPECT_EQ(Offsets(2, 0).front(), 100u);
  EXPECT_EQ(Offsets(3, 201).front(), 203u);
  EXPECT_TRUE(ReplaySeqs(end).empty());
}

TEST_F(DiskLogTest, AStuckMessageAndManyIdleTopicsDoNotPinTheDisk) {
  options_.entry_cache_bytes = 1;
  options_.reclaim.growth_bytes = 16 << 10;
  Open();
  auto liveness = std::make_shared<ModelLiveness>();
  std::set<std::pair<uint64_t, uint64_t>> living = {{1, 0}};
  uint64_t seq = 0;
  for (uint64_t topic = 100; topic < 200; ++topic) {
    Append(MakeRecord(++seq, MakeEntry(topic, 0, 1, 100)));
    living.insert({topic, 0});
  }
  liveness->KeepOnly(living);
  log_->SetLiveness(liveness);
  Lsn checkpoint = 0;
  for (int i = 0; i < 3000; ++i) {  // a hundred segments, acked at once
    Append(MakeRecord(++seq, MakeEntry(1, i, 1, 2000)));
    log_->MayHaveDied();
    if (i % 60 == 0) {
      Barrier();
      checkpoint = log_->Stats().durable_end;
      log_->TruncateBefore(checkpoint);
      ASSERT_TRUE(Eventually([&] {
        log_->MayHaveDied();
        return log_->Stats().disk_bytes <= 16 * (64u << 10);
      })) << log_->Stats().disk_bytes;
    }
  }
  Crash();
  Open(checkpoint);
  EXPECT_EQ(Offsets(1, 0).front(), 0u);
  for (uint64_t topic = 100; topic < 200; ++topic) EXPECT_EQ(Offsets(topic, 0).size(), 1u);
}

TEST_F(DiskLogTest, WithoutALivenessEntriesStay) {
  options_.reclaim.growth_bytes = 1;
  Open();
  for (int i = 0; i < 100; ++i) Append(MakeRecord(i + 1, MakeEntry(1, i, 1, 2000)));
  Barrier();
  log_->TruncateBefore(log_->Stats().durable_end);
  Append(MakeRecord(101));
  EXPECT_EQ(Offsets(1, 0).size(), 100u);
}

TEST_F(DiskLogTest, AFullDiskIsRefusedBeforeItIsFullAndHeals) {
  options_.min_free_bytes = 256 << 10;
  files_->SetCapacity(640 << 10);
  Open();
  EXPECT_TRUE(log_->HasRoomToGrow());
  for (int i = 0; i < 190; ++i) Append(MakeRecord(i + 1, MakeEntry(1, i, 1, 2000)));
  EXPECT_TRUE(Eventually([&] { return !log_->HasRoomToGrow(); }));
  // Acks still go, out of the reserve.
  for (int i = 190; i < 200; ++i) Append(MakeRecord(i + 1));
  files_->SetCapacity(4 << 20);
  EXPECT_TRUE(Eventually([&] { return log_->HasRoomToGrow(); }));
  EXPECT_EQ(Offsets(1, 0).size(), 190u);
}

TEST_F(DiskLogTest, ACommitWaitsForRoomRatherThanFail) {
  files_->SetCapacity(100 << 10);  // one segment, not two
  Open();
  std::atomic<int> called{0};
  for (int i = 0; i < 100; ++i) {
    std::vector<Record> records;
    records.push_back(MakeRecord(i + 1, MakeEntry(1, i, 1, 2000)));
    log_->Append(std::move(records), [&] { ++called; });
    if (i % 10 == 0) Eventually([&] { return called == i + 1 || !log_->HasRoomToGrow(); });
  }
  EXPECT_TRUE(Eventually([&] { return !log_->HasRoomToGrow(); }));
  EXPECT_LT(called, 100);
  files_->SetCapacity(4 << 20);
  EXPECT_TRUE(Eventually([&] { return called == 100; }));
}

TEST_F(DiskLogTest, ADamagedFrameBeforeAGoodOneIsReported) {
  Open();
  for (int i = 0; i < 5; ++i) Append(MakeRecord(i + 1, MakeEntry(1, i, 1, 3000)));
  Crash();
  auto names = files_->List("/log");
  ASSERT_EQ(names->size(), 1u);
  std::string path = "/log/" + names->front();
  files_->Damage(path, 4096 + 2 * 3000);
  Status status = TryOpen();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(MessageOf(status).find(path), std::string_view::npos) << status;
  files_->Damage(path, 4096 + 2 * 3000);  // as it was
  EXPECT_TRUE(TryOpen().ok());
  files_->Damage(path, 4096 + 4 * 3080 + 2000);  // the last frame: a torn tail
  Open();
  EXPECT_EQ(ReplaySeqs(), (std::vector<uint64_t>{1, 2, 3, 4}));
  log_.reset();
  files_->Damage(path, 20);  // the header
  EXPECT_EQ(TryOpen().code(), StatusCode::kDataLoss);
}

TEST_F(DiskLogTest, AMissingSegmentIsReported) {
  Open();
  for (int i = 0; i < 100; ++i) Append(MakeRecord(i + 1, MakeEntry(1, i, 1, 3000)));
  Crash();
  ASSERT_TRUE(files_->Remove("/log/0000000002.seg").ok());
  EXPECT_EQ(TryOpen().code(), StatusCode::kDataLoss);
}

TEST_F(DiskLogTest, AnIdleBarrierCostsNoGroup) {
  Open();
  Append(MakeRecord(1));
  uint64_t groups = log_->Stats().groups;
  Barrier();
  EXPECT_EQ(log_->Stats().groups, groups);
}

}  // namespace
}  // namespace millrace::storage
