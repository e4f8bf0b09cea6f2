// commit_log_bench [DIRECTORY [space|memory]]: the log against its ceiling, plain write and
// fdatasync of the same bytes in the same run.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <semaphore>
#include <string>
#include <vector>

#include "storage/commit_log/disk_log.h"
#include "storage/file.h"

namespace millrace::storage {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Writes `total` bytes in pieces of `piece`, each synced, over blocks written before. Bytes a
// second.
double RawRate(const std::string& directory, size_t piece, uint64_t total) {
  std::string path = directory + "/raw";
  std::string bytes(piece, 'x');
  uint64_t window = std::min<uint64_t>(total, 512ull << 20) / piece * piece;
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (uint64_t at = 0; at < window; at += piece) (void)!::pwrite(fd, bytes.data(), piece, at);
  ::fsync(fd);
  auto begin = SteadyClock::now();
  for (uint64_t at = 0; at < total; at += piece) {
    (void)!::pwrite(fd, bytes.data(), piece, at % window);
    ::fdatasync(fd);
  }
  double rate = total / Seconds(SteadyClock::now() - begin);
  ::close(fd);
  ::unlink(path.c_str());
  return rate;
}

class AllDead : public Liveness {
 public:
  void CountLive(std::vector<TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    done(std::vector<uint32_t>(entries.size(), 0));
  }
};

std::unique_ptr<DiskLog> Open(const std::string& directory) {
  DiskLogOptions options;
  options.directory = directory + "/log";
  options.files = RealFiles();
  auto log = OpenDiskLog(options);
  if (!log.ok()) std::printf("%s\n", log.status().ToString().c_str());
  return *std::move(log);
}

std::vector<Record> MakeRecords(uint64_t seq, const SharedBytes& body) {
  std::vector<Record> records;
  records.push_back({{ShardKind::kTopic, 1},
                     seq,
                     SharedBytes("x"),
                     TopicEntry{{1, 0}, seq * 100, 100, {}, body}});
  return records;
}

// Entries of `size` with `in_flight` at a time. Bytes a second. With `recycle` the segments behind
// are freed as they fill.
double LogRate(CommitLog& log, size_t size, int in_flight, uint64_t total, uint64_t* seq,
               bool recycle) {
  SharedBytes body(std::string(size, 'x'));
  std::counting_semaphore<> slots(in_flight);
  auto begin = SteadyClock::now();
  for (uint64_t done = 0; done < total; done += size) {
    slots.acquire();
    log.Append(MakeRecords(++*seq, body), [&] { slots.release(); });
    if (recycle && *seq % 256 == 0) {
      log.TruncateBefore(log.Stats().durable_end);
      log.MayHaveDied();
    }
  }
  for (int i = 0; i < in_flight; ++i) slots.acquire();
  return total / Seconds(SteadyClock::now() - begin);
}

void IdleLatency(CommitLog& log, uint64_t* seq) {
  SharedBytes body(std::string(1000, 'x'));
  std::vector<double> millis;
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto begin = SteadyClock::now();
    std::promise<void> durable;
    log.Append(MakeRecords(++*seq, body), [&] { durable.set_value(); });
    durable.get_future().wait();
    millis.push_back(Seconds(SteadyClock::now() - begin) * 1000);
  }
  std::sort(millis.begin(), millis.end());
  std::printf("idle commit of 1 KB: p50 %.2f ms, p90 %.2f ms, p99 %.2f ms\n", millis[250],
              millis[450], millis[495]);
}

void RawLatency(const std::string& directory) {
  std::string path = directory + "/raw";
  std::string bytes(1 << 20, 'x');
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  (void)!::pwrite(fd, bytes.data(), bytes.size(), 0);
  ::fsync(fd);
  std::vector<double> millis;
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto begin = SteadyClock::now();
    (void)!::pwrite(fd, bytes.data(), 1100, i * 1100);
    ::fdatasync(fd);
    millis.push_back(Seconds(SteadyClock::now() - begin) * 1000);
  }
  std::sort(millis.begin(), millis.end());
  std::printf("raw write and fdatasync of 1 KB: p50 %.2f ms, p90 %.2f ms, p99 %.2f ms\n",
              millis[250], millis[450], millis[495]);
  ::close(fd);
  ::unlink(path.c_str());
}

void ColdRead(const std::string& directory, uint64_t total) {
  auto begin = SteadyClock::now();
  auto log = Open(directory);
  std::printf("recovery of %.1f GB: %.0f ms\n", total / 1e9,
              Seconds(SteadyClock::now() - begin) * 1000);
  begin = SteadyClock::now();
  uint64_t offset = 0, bytes = 0;
  while (true) {
    auto entries = log->ReadEntries({1, 0}, offset, 1 << 20);
    if (!entries.ok() || entries->empty()) break;
    for (const TopicEntry& entry : *entries) bytes += entry.body.size();
    offset = entries->back().first_offset + entries->back().count;
  }
  std::printf("read of all entries: %.0f MB/s (%.2f GB)\n",
              bytes / 1e6 / Seconds(SteadyClock::now() - begin), bytes / 1e9);
}

std::string MemoryLine() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon")) return line;
  }
  return "";
}

// Only the first message of every topic is needed.
class FirstLives : public Liveness {
 public:
  void CountLive(std::vector<TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    std::vector<uint32_t> live;
    for (const TopicEntry& entry : entries) live.push_back(entry.first_offset == 0 ? 1 : 0);
    done(std::move(live));
  }
};

// 10 GB published and acked, one message stuck, 1,000 idle topics hold one each; a checkpoint every
// 256 MB.
void Space(const std::string& directory) {
  auto log = Open(directory);
  log->SetLiveness(std::make_shared<FirstLives>());
  SharedBytes body(std::string(100'000, 'x'));
  std::counting_semaphore<> slots(32);
  auto append = [&](uint64_t topic, uint64_t offset, uint64_t seq) {
    slots.acquire();
    std::vector<Record> records;
    records.push_back({{ShardKind::kTopic, topic},
                       seq,
                       SharedBytes("x"),
                       TopicEntry{{topic, 0}, offset, 1, {}, body}});
    log->Append(std::move(records), [&] { slots.release(); });
  };
  for (uint64_t topic = 1; topic <= 1000; ++topic) append(topic, 0, 1);
  uint64_t most = 0, checkpoint = 0;
  for (uint64_t i = 1; i <= 100'000; ++i) {
    append(1, i, i + 1);
    if (i % 100 != 0) continue;
    log->MayHaveDied();
    LogStats stats = log->Stats();
    most = std::max(most, stats.disk_bytes);
    if (stats.durable_end - checkpoint > 256 << 20) {
      checkpoint = stats.durable_end;
      log->TruncateBefore(checkpoint);
    }
  }
  log->Close();
  std::printf("10 GB acked, 1,001 messages of 100 KB stuck: at most %.0f MB on disk, now %.0f MB\n",
              most / 1e6, log->Stats().disk_bytes / 1e6);
}

// A million waiting messages of 1 KB, one a publish.
void Memory(const std::string& directory) {
  std::printf("empty: %s\n", MemoryLine().c_str());
  {
    auto log = Open(directory);
    std::counting_semaphore<> slots(1000);
    auto begin = SteadyClock::now();
    for (uint64_t i = 0; i < 1'000'000; ++i) {
      slots.acquire();
      std::vector<Record> records;
      records.push_back(
          {{ShardKind::kTopic, 1},
           i,
           SharedBytes("x"),
           TopicEntry{{1, 0}, i, 1, {int64_t(i) * 1000}, SharedBytes(std::string(1000, 'x'))}});
      log->Append(std::move(records), [&] { slots.release(); });
    }
    log->Close();
    std::printf("1 M x 1 KB, 1000 in flight: %.0f/s; %s; disk %.0f MB\n",
                1e6 / Seconds(SteadyClock::now() - begin), MemoryLine().c_str(),
                log->Stats().disk_bytes / 1e6);
  }
  ColdRead(directory, 1'000'000'000);
  std::printf("after reading: %s\n", MemoryLine().c_str());
}

int Main(int argc, char** argv) {
  std::string directory = argc > 1 ? argv[1] : "commit_log_bench_files";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::string_view what = argc > 2 ? argv[2] : "";
  if (!what.empty()) {
    what == "space" ? Space(directory) : Memory(directory);
    std::filesystem::remove_all(directory);
    return 0;
  }
  uint64_t total = 1ull << 30;
  uint64_t seq = 0;
  {
    auto log = Open(directory);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(500));  // the first segment is being filled
    RawLatency(directory);
    IdleLatency(*log, &seq);
    for (int round = 0; round < 3; ++round) {
      double raw = RawRate(directory, 1 << 20, total);
      double fresh = LogRate(*log, 100'000, 32, total, &seq, false);
      std::printf(
          "100 KB x 32 in flight, new segments: %.0f MB/s; raw 1 MB writes %.0f MB/s; ratio %.2f\n",
          fresh / 1e6, raw / 1e6, fresh / raw);
    }
    log->Close();
  }
  ColdRead(directory, 3 * total);
  {
    auto log = Open(directory);
    log->SetLiveness(std::make_shared<AllDead>());
    LogRate(*log, 100'000, 32, total, &seq, true);  // recycling sets in
    for (int round = 0; round < 3; ++round) {
      double raw = RawRate(directory, 1 << 20, total);
      double reused = LogRate(*log, 100'000, 32, total, &seq, true);
      std::printf(
          "100 KB x 32 in flight, recycled segments: %.0f MB/s; raw %.0f MB/s; ratio %.2f; disk "
          "%.0f MB\n",
          reused / 1e6, raw / 1e6, reused / raw, log->Stats().disk_bytes / 1e6);
    }
    log->Close();
  }
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace millrace::storage

int main(int argc, char** argv) { return millrace::storage::Main(argc, argv); }
