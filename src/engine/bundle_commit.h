// One commit a bundle: everything it did in records that are appended together, then applied;
// effects follow when they are durable.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/faults.h"
#include "engine/metrics.h"
#include "engine/progress_keeper.h"
#include "engine/stage.h"
#include "storage/commit_log.h"

namespace millrace::engine {

// A range's part of a commit. The first of a commit is the lead: its record carries outputs,
// residuals, metrics.
struct RangeRecord {
  RangeShard* range = nullptr;
  BundleRecord record;
};

// Guarantee: a record is applied in the turn in which it is appended, so all ranges of the job see
// the commits in the order of the log. That is safe although nothing is durable yet: what a later
// record depends on stands before it in the same log, hence a crash keeps a prefix that is a state
// the job was in. What the world sees (acks, sinks' writes, finalisation, the end of the job, rows
// of user state) waits for durability. Single-threaded; owned by the job.
class BundleCommit {
 public:
  struct Parts {
    const Plan* plan = nullptr;
    std::vector<std::unique_ptr<StageState>>* stages = nullptr;
    ProgressKeeper* keeper = nullptr;
    MetricTable* committed = nullptr;
    storage::CommitLog* log = nullptr;
    storage::Store* store = nullptr;
    uint64_t job = 0;
    const Clock* clock = nullptr;
    Faults faults;
    std::function<void()> before_append;    // marks the job dirty
    std::function<Task(Task)> on_executor;  // a task that posts to the job's executor
    std::function<void()> became_durable;   // sinks and keys may go on
  };
  explicit BundleCommit(Parts parts);

  // `on_durable` runs on the job's executor once the records are durable.
  void Commit(std::vector<RangeRecord> records, Task on_durable);
  // Nothing new: runs when all appended before is durable.
  void Barrier(Task on_durable);

  // Recovery: a record of `range`.
  Status Replay(StageState& stage, RangeShard& range, uint64_t seq, const SharedBytes& payload);

  // Everything up to this commit is durable.
  uint64_t durable_ordinal() const { return durable_; }
  // The times a stage's ranges live by now.
  RangeTimes TimesOf(const StageState& stage) const;
  // Minima of the stage's ranges to the keeper.
  void UpdateBounds(const StageState& stage);

 private:
  struct SideConsumer {
    StageState* stage;
    size_t index;
    bool multimap;
  };
  // Rows of side inputs in the record's outputs.
  void AppendSides(const RangeShard& from, uint64_t seq, const BundleRecord& record,
                   storage::WriteBatch& batch);
  void Apply(StageState& stage, RangeShard& range, uint64_t seq, const BundleRecord& record,
             bool live);
  void Route(const PackedChunk& chunk, uint64_t spread, Arrival how);
  void Deliver(StageState& to, const PackedChunk& chunk, uint64_t spread, Arrival how);
  void OnDurable(uint64_t ordinal, const storage::WriteBatch& writes);

  Parts parts_;
  std::vector<std::vector<StageState*>> consumers_;  // by collection
  std::vector<std::vector<SideConsumer>> side_consumers_;
  uint64_t ordinal_ = 0, durable_ = 0;
};

}  // namespace millrace::engine
