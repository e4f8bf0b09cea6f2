// Seeded crashes of the log over the faulty file layer, against a model: everything whose callback
// ran is there, in order, readable; nothing is there that was not appended. MR_SEEDS=n runs n
// seeds, MR_SEED=s runs that one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "base/fault_points.h"
#include "storage/commit_log/disk_log.h"
#include "testing/faulty_files.h"

namespace millrace::storage {
namespace {

using testing::FaultyFiles;

struct Appended {
  uint64_t id = 0;  // in the payload
  std::optional<TopicPartition> partition;
  uint64_t first_offset = 0;
  uint32_t count = 0;
  size_t size = 0;
};

std::string BodyOf(const Appended& record) {
  std::string body(record.size, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(record.id * 31 + i / 7);
  return body;
}

// Which entries are needed; shared with the log's space thread. What has died stays dead over
// crashes, as acks do that are durable.
class Needed : public Liveness {
 public:
  void CountLive(std::vector<TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    std::vector<uint32_t> live;
    {
      std::lock_guard lock(mutex_);
      for (const TopicEntry& entry : entries) {
        bool dead = dead_.contains({entry.partition, entry.first_offset});
        live.push_back(dead ? 0 : entry.count);
      }
    }
    done(std::move(live));
  }
  void Kill(TopicPartition partition, uint64_t first_offset) {
    std::lock_guard lock(mutex_);
    dead_.insert({partition, first_offset});
  }
  // An offset that a crash took back will be given to another entry.
  void Forget(TopicPartition partition, uint64_t first_offset) {
    std::lock_guard lock(mutex_);
    dead_.erase({partition, first_offset});
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<TopicPartition, uint64_t>> dead_;
};

class Simulation {
 public:
  Simulation(uint64_t seed, bool same_sizes)
      : random_(seed), same_sizes_(same_sizes), files_(std::make_shared<FaultyFiles>(seed ^ 99)) {
    options_.directory = "/log";
    options_.files = files_;
    options_.segment_bytes = 64 << 10;
    options_.entry_cache_bytes = Pick(2) ? 20'000 : 1;
    options_.index_cache_bytes = 10'000;
    options_.durability = Pick(4) == 0 ? Durability::kAsync : Durability::kSync;
    options_.reclaim.growth_bytes = 1;
    options_.reclaim.idle_pause = std::chrono::milliseconds(1);
  }

  // The first difference to the model, or nothing.
  std::optional<std::string> Run() {
    for (int round = 0; round < 6; ++round) {
      if (auto problem = Open()) return problem;
      files_->CrashAfter(1 + Pick(Pick(3) == 0 ? 20 : 400));
      for (int step = 0; step < 2000 && !files_->crashed(); ++step) {
        if (auto problem = Step()) return problem;
      }
      files_->CrashNow();
      log_.reset();
      files_->Restart();
    }
    return Open();
  }

 private:
  uint64_t Pick(uint64_t below) { return random_() % below; }

  std::optional<std::string> Open() {
    options_.replay_position = replay_position_;
    auto opened = OpenDiskLog(options_);
    if (!opened.ok()) return "does not open: " + opened.status().ToString();
    log_ = *std::move(opened);
    if (auto problem = CheckReplay()) return problem;
    if (auto problem = CheckEntries()) return problem;
    log_->SetLiveness(needed_);
    return std::nullopt;
  }

  std::optional<std::string> CheckReplay() {
    std::vector<std::pair<uint64_t, size_t>> found;
    std::optional<std::string> problem;
    Status status = log_->Replay(replay_position_, [&](Lsn, const Record& record) {
      found.emplace_back(record.seq, record.entry ? record.entry->body.size() : 0);
      if (record.payload.view() != "payload " + std::to_string(record.seq))
        problem = "wrong payload";
      return OkStatus();
    });
    if (!status.ok()) return "does not replay: " + status.ToString();
    if (problem) return problem;
    size_t acknowledged = acknowledged_;
    size_t first = appended_.size();
    if (!found.empty()) {
      for (first = 0; first < appended_.size() && appended_[first].id != found[0].first;) ++first;
      if (first == appended_.size()) return "replay begins with a record never appended";
      if (first > acknowledged_at_checkpoint_) return "replay begins too late";
    } else if (acknowledged > acknowledged_at_checkpoint_) {
      return "acknowledged records are gone";
    } else {
      first = acknowledged_at_checkpoint_;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (first + i >= appended_.size() || appended_[first + i].id != found[i].first) {
        return "a record that was not appended, or out of order";
      }
      if (appended_[first + i].size != found[i].second) return "wrong entry";
    }
    size_t end = first + found.size();
    if (end < acknowledged) return "acknowledged records are gone";
    for (size_t i = end; i < appended_.size(); ++i) {
      if (appended_[i].partition)
        needed_->Forget(*appended_[i].partition, appended_[i].first_offset);
    }
    appended_.resize(end);
    acknowledged_ = end;
    heard_ = end;
    next_offsets_.clear();
    for (const Appended& record : appended_) {
      if (record.partition) next_offsets_[*record.partition] = record.first_offset + record.count;
    }
    std::erase_if(living_, [&](const auto& living) {
      auto next = next_offsets_.find(living.first.first);
      return next == next_offsets_.end() || living.first.second >= next->second;
    });
    return std::nullopt;
  }

  // Every living entry can be read; nothing else but dead ones turns up.
  std::optional<std::string> CheckEntries() {
    for (uint64_t topic = 1; topic <= 3; ++topic) {
      TopicPartition partition{topic, 0};
      uint64_t offset = 0;
      auto living = living_.lower_bound({partition, 0});
      while (true) {
        auto entries = log_->ReadEntries(partition, offset, 20'000);
        if (!entries.ok()) return "cannot read: " + entries.status().ToString();
        if (entries->empty()) break;
        for (const TopicEntry& entry : *entries) {
          if (entry.first_offset < offset) return "entries out of order";
          offset = entry.first_offset + entry.count;
          if (living != living_.end() && living->first.first == partition &&
              living->first.second < entry.first_offset) {
            return "a living entry is gone";
          }
          if (living == living_.end() || living->first.first != partition ||
              living->first.second != entry.first_offset) {
            continue;
          }
          if (entry.body.view() != BodyOf(living->second)) return "wrong body";
          ++living;
        }
      }
      if (living != living_.end() && living->first.first == partition) {
        return "the last living entries are gone";
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> Step() {
    switch (Pick(12)) {
      case 0:
        Settle();
        return std::nullopt;
      case 1:
        Checkpoint();
        return std::nullopt;
      case 2:
      case 3:
        KillSome();
        return std::nullopt;
      case 4:
        if (Pick(5) != 0) return std::nullopt;
        Settle();
        if (files_->crashed()) return std::nullopt;
        return CheckEntries();
      default:
        AppendSome();
        return std::nullopt;
    }
  }

  void AppendSome() {
    std::vector<Record> records;
    uint64_t count = 1 + Pick(3);
    for (uint64_t i = 0; i < count; ++i) {
      Appended made;
      made.id = next_id_++;
      Record record{
          {ShardKind::kTopic, 1}, made.id, SharedBytes("payload " + std::to_string(made.id)), {}};
      if (same_sizes_ || Pick(2) == 0) {
        made.partition = TopicPartition{same_sizes_ ? 1 : 1 + Pick(3), 0};
        made.count = 1 + (same_sizes_ ? 0 : Pick(4));
        made.first_offset = next_offsets_[*made.partition];
        made.size = same_sizes_ ? 1500 : Pick(Pick(4) == 0 ? 9000 : 900);
        next_offsets_[*made.partition] += made.count;
        record.entry = TopicEntry{
            *made.partition, made.first_offset, made.count, {}, SharedBytes(BodyOf(made))};
        living_[{*made.partition, made.first_offset}] = made;
      }
      appended_.push_back(made);
      records.push_back(std::move(record));
    }
    size_t upto = appended_.size();
    log_->Append(std::move(records), [this, upto] {
      // Word that came after the crash is worth nothing.
      if (files_->crashed()) return;
      heard_ = upto;
      // With durability async it promises nothing against a power loss until a sync.
      if (options_.durability == Durability::kSync) acknowledged_ = upto;
    });
    if (same_sizes_) Settle();
  }

  // Waits for what was appended.
  void Settle() {
    std::promise<void> done;
    log_->Append({}, [&] { done.set_value(); });
    done.get_future().wait();
  }

  void Checkpoint() {
    Settle();
    Lsn end = log_->Stats().durable_end;
    // A checkpoint is a durable fact of the store, made after a sync of the log.
    if (!Sync()) return;
    replay_position_ = end;
    acknowledged_at_checkpoint_ = acknowledged_;
    log_->TruncateBefore(end);
  }

  // True if what was heard of is safe from a power loss now.
  bool Sync() {
    size_t heard = heard_;
    log_->SyncNow();
    if (files_->crashed()) return false;
    acknowledged_ = std::max<size_t>(acknowledged_, heard);
    return true;
  }

  // Only what is durable is ever acked.
  void KillSome() {
    Settle();
    if (!Sync()) return;
    uint64_t keep = 1 + Pick(40);
    for (auto it = living_.begin(); it != living_.end();) {
      if (it->second.id % keep == 0 || Pick(3) == 0) {
        ++it;
        continue;
      }
      needed_->Kill(it->first.first, it->first.second);
      it = living_.erase(it);
    }
    log_->MayHaveDied();
  }

  std::mt19937_64 random_;
  const bool same_sizes_;  // frames of old contents then fall on the places of new ones
  const std::shared_ptr<FaultyFiles> files_;
  DiskLogOptions options_;
  const std::shared_ptr<Needed> needed_ = std::make_shared<Needed>();
  std::vector<Appended> appended_;  // all that may be in the log, in order
  std::map<TopicPartition, uint64_t> next_offsets_;
  std::map<std::pair<TopicPartition, uint64_t>, Appended> living_;
  std::atomic<size_t> heard_{0};         // appended_ up to here has been called back
  std::atomic<size_t> acknowledged_{0};  // and up to here must be there after a crash
  uint64_t next_id_ = 1;
  Lsn replay_position_ = 0;
  size_t acknowledged_at_checkpoint_ = 0;
  std::unique_ptr<DiskLog> log_;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(CrashSimulation, NothingAcknowledgedIsLost) {
  uint64_t seeds = FromEnvironment("MR_SEEDS", 30);
  uint64_t first = FromEnvironment("MR_SEED", 0);
  if (first != 0) {
    seeds = 1;
  } else {
    first = std::random_device{}();
  }
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    auto problem = Simulation(seed, seed % 4 == 0).Run();
    ASSERT_FALSE(problem.has_value()) << "MR_SEED=" << seed << ": " << *problem;
  }
  std::printf("%lu seeds from MR_SEED=%lu\n", seeds, first);
}

// Planted bugs: the simulation must notice each within a bounded number of seeds.
void ExpectCaught(std::string_view fault, bool same_sizes) {
  ScopedFault planted(fault);
  uint64_t first = FromEnvironment("MR_SEED", std::random_device{}());
  for (uint64_t seed = first; seed < first + 200; ++seed) {
    if (auto problem = Simulation(seed, same_sizes).Run()) {
      std::printf("%.*s caught at seed %lu after %lu: %s\n", static_cast<int>(fault.size()),
                  fault.data(), seed, seed - first, problem->c_str());
      return;
    }
  }
  FAIL() << "nobody noticed " << fault << " from seed " << first;
}

TEST(CrashSimulation, NoticesAMissingSync) { ExpectCaught("storage.skip_sync", false); }
TEST(CrashSimulation, NoticesOldFramesThatPass) {
  ExpectCaught("storage.crc_ignores_sequence", true);
}
TEST(CrashSimulation, NoticesSegmentsRecycledTooEarly) {
  ExpectCaught("storage.recycle_too_early", false);
}

}  // namespace
}  // namespace millrace::storage
