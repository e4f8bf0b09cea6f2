// Seeded crashes of log, store and checkpoints together over the faulty file layer: after each
// restart the store, brought up to date by replay, holds exactly what a prefix of the records says,
// and the prefix holds all that was acknowledged. MR_SEEDS and MR_SEED as in
// crash_simulation_test.cc.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <random>

#include "base/executor.h"
#include "base/fault_points.h"
#include "storage/open.h"
#include "testing/faulty_files.h"

namespace millrace::storage {
namespace {

using testing::FaultyFiles;
using Rows = std::map<std::string, std::string>;

constexpr std::string_view kSeqRow = "~seq";

// Keeps rows: every record is a batch, applied when durable. Rows of kState go to the store at
// once, those of kBroker stay in memory until a checkpoint.
class RowShard : public Checkpointed, public std::enable_shared_from_this<RowShard> {
 public:
  RowShard(Storage& storage, Executor& pool) : storage_(storage), executor_(pool) {}

  // Replays what the store does not hold; true if all went well.
  bool Recover() {
    auto position = Checkpointer::ReplayPosition(*storage_.store);
    if (!position.ok()) return false;
    stored_seq_ = SeqOf(Table::kState);
    kept_seq_ = SeqOf(Table::kBroker);
    applied_ = std::max(stored_seq_, kept_seq_);
    return storage_.log
        ->Replay(*position,
                 [&](Lsn, const Record& record) {
                   auto batch = WriteBatch::Parse(record.payload.view());
                   if (!batch.ok()) return batch.status();
                   if (record.seq > applied_ + 1) return Internal("a gap in the records");
                   return Apply(record.seq, *batch);
                 })
        .ok();
  }

  Status Apply(uint64_t seq, const WriteBatch& batch) {
    WriteBatch direct;
    for (const WriteBatch::Op& op : batch.ops()) {
      if (op.table == Table::kState) direct.Put(op.table, op.key, op.value);
      if (op.table == Table::kBroker && seq > kept_seq_) unwritten_.Put(op.table, op.key, op.value);
    }
    applied_ = std::max(applied_, seq);
    if (seq <= stored_seq_) return OkStatus();
    direct.Put(Table::kState, kSeqRow, std::to_string(seq));
    return storage_.store->Write(direct);
  }

  void ApplyLater(uint64_t seq, WriteBatch batch) {
    executor_.Post([self = shared_from_this(), seq, batch = std::move(batch)] {
      (void)self->Apply(seq, batch);
    });
  }

  void WriteCheckpoint(Callback<void(WriteBatch)> done) override {
    executor_.Post([self = shared_from_this(), done = std::move(done)]() mutable {
      WriteBatch batch = self->unwritten_;
      batch.Put(Table::kBroker, kSeqRow, std::to_string(self->applied_));
      self->unwritten_.Clear();
      done(std::move(batch));
    });
  }

  uint64_t applied() const { return applied_; }
  const WriteBatch& unwritten() const { return unwritten_; }

 private:
  uint64_t SeqOf(Table table) {
    auto row = storage_.store->Get(table, kSeqRow);
    return row.ok() && *row ? std::stoull(**row) : 0;
  }

  Storage& storage_;
  SerialExecutor executor_;
  WriteBatch unwritten_;
  uint64_t applied_ = 0;
  uint64_t stored_seq_ = 0;  // kState holds all up to here
  uint64_t kept_seq_ = 0;    // kBroker does
};

class Simulation {
 public:
  ~Simulation() { End(); }
  explicit Simulation(uint64_t seed)
      : random_(seed), files_(std::make_shared<FaultyFiles>(seed ^ 7)) {
    options_.directory = "/data";
    options_.files = files_;
    options_.segment_bytes = 256 << 10;
    options_.min_free_bytes = 0;
    options_.checkpoint_bytes = 100 << 10;
    options_.durability = random_() % 4 == 0 ? Durability::kAsync : Durability::kSync;
  }

  std::optional<std::string> Run() {
    for (int round = 0; round < 5; ++round) {
      // The first crash may fall into the creation of the directory.
      files_->CrashAfter(1 + random_() % (round == 0 && random_() % 2 ? 60 : 600));
      auto problem = Round();
      if (problem) return problem;
      End();
      files_->Restart();
    }
    return Open();
  }

 private:
  std::optional<std::string> Open() {
    auto opened = OpenDirectory(options_);
    if (!opened.ok()) return "does not open: " + opened.status().ToString();
    storage_ = *std::move(opened);
    pool_ = std::make_unique<ThreadPool>(1, "shards");
    shard_ = std::make_shared<RowShard>(*storage_, *pool_);
    if (!shard_->Recover()) return "does not recover";
    storage_->checkpointer->MarkDirty(shard_);  // what was replayed is in memory only
    uint64_t upto = shard_->applied();
    if (upto < acknowledged_) return "acknowledged records are gone";
    if (upto > records_.size()) return "records that were never appended";
    records_.resize(upto);
    acknowledged_ = options_.durability == Durability::kSync ? upto : acknowledged_.load();
    return CheckRows();
  }

  // Shards first, then what they use; the pool takes posts to the last, and drops them.
  void End() {
    files_->CrashNow();
    if (pool_) pool_->Stop();
    storage_.reset();
    shard_.reset();
    pool_.reset();
  }

  std::optional<std::string> CheckRows() {
    Rows expected[2];
    for (const WriteBatch& batch : records_) {
      for (const WriteBatch::Op& op : batch.ops()) {
        expected[op.table == Table::kBroker][op.key] = op.value;
      }
    }
    Rows found[2];
    for (Table table : {Table::kState, Table::kBroker}) {
      auto rows = storage_->store->NewIterator(table, "", kSeqRow);
      for (; rows->Valid(); rows->Next()) {
        found[table == Table::kBroker].emplace(rows->key(), rows->value());
      }
    }
    for (const WriteBatch::Op& op : shard_->unwritten().ops()) found[1][op.key] = op.value;
    if (found[0] != expected[0]) return "state rows differ";
    if (found[1] != expected[1]) return "broker rows differ";
    return std::nullopt;
  }

  std::optional<std::string> Round() {
    if (auto problem = Open()) return problem;
    for (int step = 0; step < 500 && !files_->crashed(); ++step) {
      if (random_() % 40 == 0) {
        Checkpoint();
      } else {
        AppendOne();
      }
      if (random_() % 5 == 0) Settle();
      if (random_() % 30 == 0) (void)storage_->store->Flush();  // as RocksDB does by itself
    }
    return std::nullopt;
  }

  void AppendOne() {
    WriteBatch batch;
    for (uint64_t i = 0; i < 1 + random_() % 3; ++i) {
      std::string key = std::to_string(random_() % 50);
      std::string value(random_() % 1000, static_cast<char>('a' + random_() % 26));
      batch.Put(random_() % 2 ? Table::kState : Table::kBroker, key, value);
    }
    records_.push_back(batch);
    uint64_t seq = records_.size();
    storage_->checkpointer->MarkDirty(shard_);
    std::vector<Record> records;
    records.push_back({{ShardKind::kRange, 1}, seq, SharedBytes(batch.Serialize()), {}});
    storage_->log->Append(std::move(records), [this, seq, batch, shard = shard_] {
      if (!files_->crashed() && options_.durability == Durability::kSync) acknowledged_ = seq;
      shard->ApplyLater(seq, batch);
    });
    storage_->checkpointer->MayRun();
  }

  void Checkpoint() {
    std::promise<void> done;
    storage_->checkpointer->Run([&](Status) { done.set_value(); });
    done.get_future().wait();
  }

  void Settle() {
    std::promise<void> done;
    storage_->log->Append({}, [&] { done.set_value(); });
    done.get_future().wait();
  }

  std::mt19937_64 random_;
  const std::shared_ptr<FaultyFiles> files_;
  OpenOptions options_;
  std::vector<WriteBatch> records_;  // seq - 1
  std::atomic<uint64_t> acknowledged_{0};
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<RowShard> shard_;
};

TEST(StorageSimulation, LogStoreAndCheckpointsAgreeAfterAnyCrash) {
  const char* many = std::getenv("MR_SEEDS");
  const char* one = std::getenv("MR_SEED");
  uint64_t seeds = one != nullptr ? 1 : many != nullptr ? std::strtoull(many, nullptr, 10) : 4;
  uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : std::random_device{}();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    auto problem = Simulation(seed).Run();
    ASSERT_FALSE(problem.has_value()) << "MR_SEED=" << seed << ": " << *problem;
  }
  std::printf("%lu seeds from MR_SEED=%lu\n", seeds, first);
}

TEST(StorageSimulation, NoticesACheckpointThatIsNotFlushed) {
  ScopedFault planted("storage.checkpoint_skips_flush");
  uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 50; ++seed) {
    if (auto problem = Simulation(seed).Run()) {
      std::printf("caught at seed %lu after %lu: %s\n", seed, seed - first, problem->c_str());
      return;
    }
  }
  FAIL() << "nobody noticed from seed " << first;
}

}  // namespace
}  // namespace millrace::storage
