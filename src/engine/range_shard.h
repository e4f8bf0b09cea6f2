// A key range of a stage: the unit of decide, apply and durable records. Its input waits here.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/chunk_table.h"
#include "engine/dedup.h"
#include "engine/grouping.h"
#include "engine/pending.h"
#include "engine/plan.h"
#include "engine/records.h"
#include "engine/timers.h"
#include "storage/types.h"

namespace millrace::engine {

// Some of a key's elements, or its timers of one due time.
struct KeyBatch {
  KeyEntry* entry = nullptr;
  std::vector<Ref> refs;
  std::vector<Ref> expired;  // too late: consumed without being processed
  std::vector<Timer> timers;
};

// The rest of a splittable element, due again.
struct ResidualWork {
  uint64_t id = 0;
};

// One piece of input in a bundle: what is locked or taken out of line until the bundle ends.
using Input = std::variant<Run, KeyBatch, CellPane, std::unique_ptr<SourcePending>, ResidualWork>;

// What time it is for a range.
struct RangeTimes {
  GroupingTimes grouping;  // the stage's watermarks and the processing clock
  windowing::Millis side_ready = INT64_MAX;
  SteadyTime steady;
  WallTime wall;
};

struct WaitingResidual {
  ResidualRecord record;
  SteadyTime due;
  bool taken = false;
};

// Guarantee: Apply and Deliver are the only ways in which durable state changes, at run time and at
// recovery, and both give the same state for the same records. Single-threaded; owned by its job.
// It runs nothing and appends nothing: dispatcher and bundle_commit do.
class RangeShard {
 public:
  RangeShard(uint64_t job, StageId stage, const StageSpec& spec, const Plan& plan, uint16_t index,
             storage::Store& store, Duration dedup_window);

  storage::ShardId id() const { return id_; }
  uint16_t index() const { return index_; }

  // ---- Arrivals.
  // Elements from a commit, to wait here. Its number is the next chunk number, always.
  void Deliver(std::shared_ptr<const PackedChunk> chunk, uint64_t ordinal, const RangeTimes& times,
               Arrival how);
  // A source element; not durable. The caller has asked dedup.
  void Offer(std::unique_ptr<SourcePending> pending);

  // ---- Cutting bundles.
  // Watermarks, the clock or side inputs moved.
  void Advance(const RangeTimes& times);
  // Takes input until the budget is spent. The taken counts as pending until Apply or PutBack.
  std::vector<Input> Take(Budget& budget, const RangeTimes& times);
  // The bundle will not be tried again as it is: the work goes back to where it was taken, to the
  // front.
  void PutBack(Input work);
  // Only the elements; the key stays taken.
  void PutBackElements(const KeyBatch& batch) { keys_.PutBack(batch.entry, batch.refs); }
  // Key of the work was in a bundle that ended; with state, only when the commit is durable.
  void ReleaseKey(KeyEntry* entry, const RangeTimes& times);

  // ---- Commits.
  uint64_t next_seq() { return seq_ + 1; }
  // The consuming side of a record of this range: input, panes, timers, residuals, ids.
  void Apply(uint64_t seq, const BundleRecord& record, const RangeTimes& times, bool live);

  // ---- Recovery: Load, then Apply and Deliver of records, then Begin, which puts everything in
  // line.
  Status Load(const RangeTimes& times);
  void Begin(const RangeTimes& times);
  uint64_t applied_seq() const { return seq_; }
  void Checkpoint(storage::WriteBatch& batch);

  // ---- What others may see.
  std::optional<windowing::Millis> MinPending() const { return pending_times_.Min(); }
  std::optional<windowing::Millis> MinHold() const;
  windowing::Millis input_floor() const { return input_floor_; }
  windowing::Millis output_floor() const { return output_floor_; }
  // Pieces of input that could be taken now: elements, keys or panes.
  size_t ready(SteadyTime now) const;
  size_t waiting() const;  // elements that wait, not taken
  bool Quiet() const;      // nothing waits, nothing is taken, no timer is set
  std::optional<windowing::Millis> NextProcessingTime(windowing::Millis now) const;
  std::optional<SteadyTime> NextResidual(SteadyTime after) const;
  ChunkTable& chunks() { return chunks_; }
  FifoQueue& fifo() { return fifo_; }
  DedupTable& dedup() { return dedup_; }
  CellTable* cells() { return cells_.get(); }
  const WaitingResidual* residual(uint64_t id) const;
  uint64_t dropped_late() const { return cells_ ? cells_->dropped_late() : 0; }
  uint64_t dropped_expired() const { return dropped_expired_; }
  // Source elements not yet taken, oldest first; for giving back.
  std::deque<std::unique_ptr<SourcePending>>& offered() { return offered_; }
  // Consumed chunk `number`'s minimum no longer holds the watermark.
  void Consume(uint64_t chunk, uint32_t first, uint32_t count);

 private:
  bool Grouped() const { return spec_.input == InputKind::kGrouped; }
  void Enqueue(StoredChunk* chunk);
  void TakeKeys(Budget& budget, const RangeTimes& times, std::vector<Input>& taken);
  void TakeCells(Budget& budget, const RangeTimes& times, std::vector<Input>& taken);
  void TakeResiduals(Budget& budget, const RangeTimes& times, std::vector<Input>& taken);
  void DropExpired(KeyBatch& batch, const RangeTimes& times);
  bool IsEventTime(const Timer& timer) const;
  windowing::Millis SideNeeded(const PackedChunk& chunk) const;
  void SeedImpulse(const RangeTimes& times);

  const uint64_t job_;
  const StageId stage_;
  const StageSpec& spec_;
  const Plan& plan_;
  const uint16_t index_;
  const storage::ShardId id_;
  storage::Store& store_;

  uint64_t seq_ = 0;
  uint64_t next_chunk_ = 1;
  uint64_t next_residual_ = 1;
  windowing::Millis input_floor_ = windowing::kMinTimestamp,
                    output_floor_ = windowing::kMinTimestamp;
  bool changed_ = false;
  bool loaded_ = false;

  ChunkTable chunks_;
  MinTracker pending_times_;
  FifoQueue fifo_;
  KeyQueue keys_;
  std::unique_ptr<CellTable> cells_;
  TimerTable timers_;
  DedupTable dedup_;
  std::deque<std::unique_ptr<SourcePending>> offered_;
  std::multimap<windowing::Millis, StoredChunk*>
      blocked_;  // by the side input watermark they wait for
  windowing::Millis side_ready_ = INT64_MAX;
  std::map<uint64_t, WaitingResidual> residuals_;
  std::vector<uint64_t> new_residuals_, removed_residuals_;
  MinTracker residual_holds_;
  uint64_t dropped_expired_ = 0;
};

}  // namespace millrace::engine
