#include "storage/open.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

namespace millrace::storage {
namespace {

class OpenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "storage_open_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    options_.directory = root_ + "/data";
    options_.segment_bytes = 1 << 20;
    options_.min_free_bytes = 0;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<Storage> Open() {
    auto opened = OpenDirectory(options_);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::string Refusal() {
    auto opened = OpenDirectory(options_);
    EXPECT_FALSE(opened.ok());
    return std::string(MessageOf(opened.status()));
  }
  static void Append(CommitLog& log, uint64_t seq) {
    std::vector<Record> records;
    records.push_back({{ShardKind::kJobs, 1}, seq, SharedBytes("r" + std::to_string(seq)), {}});
    std::promise<void> durable;
    log.Append(std::move(records), [&] { durable.set_value(); });
    durable.get_future().wait();
  }

  std::string root_;
  OpenOptions options_;
};

TEST_F(OpenTest, KeepsWhatWasWritten) {
  {
    auto storage = Open();
    Append(*storage->log, 1);
    WriteBatch batch;
    batch.Put(Table::kJobs, "k", "v");
    ASSERT_TRUE(storage->store->Write(batch).ok());
    ASSERT_TRUE(storage->Close().ok());
  }
  auto storage = Open();
  EXPECT_EQ(storage->store->Get(Table::kJobs, "k")->value(), "v");
  auto position = Checkpointer::ReplayPosition(*storage->store);
  int replayed = 0;
  ASSERT_TRUE(storage->log
                  ->Replay(*position,
                           [&](Lsn, const Record&) {
                             ++replayed;
                             return OkStatus();
                           })
                  .ok());
  EXPECT_EQ(replayed, 0);  // the checkpoint at Close covers it
}

TEST_F(OpenTest, WithoutACloseTheLogIsReplayed) {
  for (Durability durability : {Durability::kSync, Durability::kAsync}) {
    options_.durability = durability;
    {
      Append(*Open()->log, 5);
    }
    auto storage = Open();
    uint64_t seen = 0;
    ASSERT_TRUE(storage->log
                    ->Replay(0,
                             [&](Lsn, const Record& record) {
                               seen = record.seq;
                               return OkStatus();
                             })
                    .ok());
    EXPECT_EQ(seen, 5u);
    ASSERT_TRUE(storage->store->Flush().ok());
  }
}

TEST_F(OpenTest, ALockedDirectoryNamesTheProcess) {
  auto storage = Open();
  std::string refusal = Refusal();
  EXPECT_NE(refusal.find("in use by process " + std::to_string(::getpid())), std::string::npos)
      << refusal;
  storage.reset();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(OpenTest, AnUnwritableDirectoryIsRefusedInOneSentence) {
  std::ofstream(root_ + "/data") << "a file";
  std::string refusal = Refusal();
  EXPECT_NE(refusal.find("cannot be written"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--data-dir"), std::string::npos) << refusal;
}

TEST_F(OpenTest, ANewerFormatIsRefused) {
  Open();
  std::ofstream(options_.directory + "/FORMAT") << "millrace data directory, format 2\n";
  EXPECT_NE(Refusal().find("newer version"), std::string::npos);
}

TEST_F(OpenTest, DamageIsRefusedWithItsPlace) {
  Open();
  std::ofstream(options_.directory + "/FORMAT") << "something else";
  EXPECT_NE(Refusal().find("FORMAT"), std::string::npos);
  std::ofstream(options_.directory + "/FORMAT") << "millrace data directory, format 1\n";
  Open();
  std::ofstream(options_.directory + "/store/CURRENT") << "nonsense\n";
  std::string refusal = Refusal();
  EXPECT_NE(refusal.find("is corrupt"), std::string::npos) << refusal;
}

TEST_F(OpenTest, ALostFormatFileWithALogIsNotTakenForANewDirectory) {
  {
    auto storage = Open();
    Append(*storage->log, 1);
  }
  std::filesystem::remove(options_.directory + "/FORMAT");
  EXPECT_NE(Refusal().find("no FORMAT file"), std::string::npos);
}

TEST_F(OpenTest, AnUnfinishedCreationIsBegunAgain) {
  std::filesystem::create_directories(options_.directory + "/store");
  std::ofstream(options_.directory + "/store/CURRENT") << "half";
  EXPECT_NE(Open(), nullptr);
}

TEST_F(OpenTest, StartsFast) {
  options_.segment_bytes = 128 << 20;
  auto cpu = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  auto begin = std::chrono::steady_clock::now();
  long cpu_before = cpu();
  auto storage = Open();
  auto took = std::chrono::steady_clock::now() - begin;
  std::printf("empty directory: %ld ms, %ld ms of CPU\n",
              std::chrono::duration_cast<std::chrono::milliseconds>(took).count(),
              cpu() - cpu_before);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS") || line.starts_with("RssAnon")) std::printf("%s\n", line.c_str());
  }
  storage.reset();
  begin = std::chrono::steady_clock::now();
  storage = Open();
  took = std::chrono::steady_clock::now() - begin;
  std::printf("again: %ld ms\n",
              std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

}  // namespace
}  // namespace millrace::storage
