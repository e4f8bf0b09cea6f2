#include "engine/range_shard.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/rows.h"
#include "engine/side_inputs.h"

namespace millrace::engine {

using storage::Table;
using windowing::Millis;

RangeShard::RangeShard(uint64_t job, StageId stage, const StageSpec& spec, const Plan& plan,
                       uint16_t index, storage::Store& store, Duration dedup_window)
    : job_(job),
      stage_(stage),
      spec_(spec),
      plan_(plan),
      index_(index),
      id_(RangeShardId(job, stage.value, index)),
      store_(store),
      chunks_(store, RangePrefix(job, stage.value, index, RowKind::kChunk),
              RangePrefix(job, stage.value, index, RowKind::kMarks)),
      timers_(RangePrefix(job, stage.value, index, RowKind::kTimer)),
      dedup_(RangePrefix(job, stage.value, index, RowKind::kIds), dedup_window) {
  if (Grouped()) {
    cells_ = std::make_unique<CellTable>(
        spec.strategy, spec.keyed ? &keys_ : nullptr, chunks_, store,
        RangePrefix(job, stage.value, index, RowKind::kCell),
        [&spec](const windowing::Window& window) { return engine::SideNeeded(spec, window); });
  }
}

// ---- Arrivals.

void RangeShard::Deliver(std::shared_ptr<const PackedChunk> chunk, uint64_t ordinal,
                         const RangeTimes& times, Arrival how) {
  changed_ = true;
  StoredChunk* stored = chunks_.Add(next_chunk_++, std::move(chunk), ordinal);
  if (stored->size == 0) {
    chunks_.Consume(stored, 0, 0);
    return;
  }
  if (Grouped()) {
    cells_->Arrive(stored, times.grouping, how);
    return;
  }
  pending_times_.Add(stored->min_timestamp);
  if (how == Arrival::kLive) Enqueue(stored);
}

void RangeShard::Offer(std::unique_ptr<SourcePending> pending) {
  if (pending->has_id) dedup_.Begin(pending.get());
  offered_.push_back(std::move(pending));
}

Millis RangeShard::SideNeeded(const PackedChunk& chunk) const {
  if (spec_.side_inputs.empty()) return INT64_MIN;
  Millis needed = INT64_MIN;
  windowing::Header header;
  for (size_t i = 0; i < chunk.size(); ++i) {
    if (!chunk.ReadHeader(i, &header)) continue;
    for (const windowing::Window& window : header.windows)
      needed = std::max(needed, engine::SideNeeded(spec_, window));
  }
  return needed;
}

void RangeShard::Enqueue(StoredChunk* chunk) {
  if (!spec_.side_inputs.empty()) {
    const std::shared_ptr<const PackedChunk> body = chunks_.Body(chunk);
    const Millis needed = body ? SideNeeded(*body) : INT64_MIN;
    if (needed > side_ready_) {
      blocked_.emplace(needed, chunk);
      return;
    }
  }
  if (spec_.keyed) {
    keys_.Push(chunks_, chunk);
  } else {
    fifo_.Push(chunk);
  }
}

void RangeShard::Consume(uint64_t number, uint32_t first, uint32_t count) {
  StoredChunk* chunk = chunks_.Find(number);
  if (chunk == nullptr) return;
  const Millis min_timestamp = chunk->min_timestamp;
  if (chunks_.Consume(chunk, first, count) && !Grouped()) pending_times_.Remove(min_timestamp);
}

// ---- Cutting bundles.

void RangeShard::Advance(const RangeTimes& times) {
  side_ready_ = times.side_ready;
  while (!blocked_.empty() && blocked_.begin()->first <= side_ready_) {
    StoredChunk* chunk = blocked_.begin()->second;
    blocked_.erase(blocked_.begin());
    Enqueue(chunk);
  }
  if (cells_) cells_->Advance(times.grouping, times.side_ready);
  for (const std::string& key : timers_.Advance(times.grouping.input, times.grouping.now))
    keys_.TimersDue(key);
  dedup_.Expire(times.steady);
}

std::vector<Input> RangeShard::Take(Budget& budget, const RangeTimes& times) {
  std::vector<Input> taken;
  if (!residuals_.empty()) TakeResiduals(budget, times, taken);
  if (cells_) {
    TakeCells(budget, times, taken);
    if (spec_.keyed) TakeKeys(budget, times, taken);
  } else if (spec_.keyed) {
    TakeKeys(budget, times, taken);
  } else if (spec_.input == InputKind::kSource) {
    while (!offered_.empty() && !budget.empty()) {
      budget.Spend(1, offered_.front()->element.value.size());
      taken.emplace_back(std::move(offered_.front()));
      offered_.pop_front();
    }
  } else {
    for (const Run& run : fifo_.Take(chunks_, budget)) taken.emplace_back(run);
  }
  return taken;
}

void RangeShard::TakeKeys(Budget& budget, const RangeTimes& times, std::vector<Input>& taken) {
  while (!budget.empty()) {
    KeyEntry* entry = keys_.Next();
    if (entry == nullptr) return;
    KeyBatch batch;
    batch.entry = entry;
    if (entry->timers) {
      batch.timers = timers_.DueOf(entry->key);
      entry->timers = !batch.timers.empty();
      budget.Spend(batch.timers.size(), 64 * batch.timers.size());
    }
    if (batch.timers.empty()) batch.refs = keys_.TakeElements(chunks_, entry, budget);
    if (batch.timers.empty() && batch.refs.empty()) {
      const std::string key = entry->key;
      keys_.Release(entry);
      if (cells_) cells_->KeyFree(key);
      continue;
    }
    DropExpired(batch, times);
    taken.emplace_back(std::move(batch));
  }
}

// State of an expired window is gone, so its elements must not make it anew.
void RangeShard::DropExpired(KeyBatch& batch, const RangeTimes& times) {
  windowing::Header header;
  std::erase_if(batch.refs, [&](const Ref& ref) {
    const std::shared_ptr<const PackedChunk> body = chunks_.Body(ref.chunk);
    if (!body || !body->ReadHeader(ref.index, &header) || header.windows.empty()) return false;
    for (const windowing::Window& window : header.windows) {
      if (!windowing::IsExpired(window, spec_.strategy, times.grouping.input)) return false;
    }
    batch.expired.push_back(ref);
    ++dropped_expired_;
    return true;
  });
}

void RangeShard::TakeCells(Budget& budget, const RangeTimes& times, std::vector<Input>& taken) {
  while (!budget.empty()) {
    std::optional<CellPane> pane = cells_->Take(times.grouping);
    if (!pane) return;
    size_t bytes = pane->fired.key.size() + 32;
    for (const Ref& ref : pane->refs) bytes += ref.chunk->bytes / ref.chunk->size;
    budget.Spend(std::max<size_t>(1, pane->refs.size()), bytes);
    taken.emplace_back(std::move(*pane));
  }
}

void RangeShard::TakeResiduals(Budget& budget, const RangeTimes& times, std::vector<Input>& taken) {
  for (auto& [id, residual] : residuals_) {
    if (budget.empty()) return;
    if (residual.taken || residual.due > times.steady) continue;
    residual.taken = true;
    budget.Spend(1, residual.record.element.size());
    taken.emplace_back(ResidualWork{id});
  }
}

void RangeShard::PutBack(Input work) {
  if (auto* run = std::get_if<Run>(&work)) {
    fifo_.PutBack(*run);
  } else if (auto* batch = std::get_if<KeyBatch>(&work)) {
    keys_.PutBack(batch->entry, batch->refs);
    keys_.PutBack(batch->entry, batch->expired);
    if (!batch->timers.empty()) batch->entry->timers = true;
    const std::string key = batch->entry->key;
    keys_.Release(batch->entry);
    if (cells_) cells_->KeyFree(key);
  } else if (auto* pane = std::get_if<CellPane>(&work)) {
    cells_->PutBack(*pane);
  } else if (auto* source = std::get_if<std::unique_ptr<SourcePending>>(&work)) {
    offered_.push_front(std::move(*source));
  } else if (auto* residual = std::get_if<ResidualWork>(&work)) {
    auto it = residuals_.find(residual->id);
    if (it != residuals_.end()) it->second.taken = false;
  }
}

void RangeShard::ReleaseKey(KeyEntry* entry, const RangeTimes& times) {
  for (const std::string& key : timers_.Advance(times.grouping.input, times.grouping.now))
    keys_.TimersDue(key);
  entry->timers = !timers_.DueOf(entry->key).empty();
  const std::string key = entry->key;
  keys_.Release(entry);
  if (cells_) cells_->KeyFree(key);
}

// ---- Commits.

bool RangeShard::IsEventTime(const Timer& timer) const {
  for (const TimerFamilySpec& family : spec_.timers) {
    if (family.transform == timer.transform && family.family == timer.family)
      return family.event_time;
  }
  return true;
}

void RangeShard::Apply(uint64_t seq, const BundleRecord& record, const RangeTimes& times,
                       bool live) {
  MR_CHECK(seq == seq_ + 1);
  seq_ = seq;
  changed_ = true;
  input_floor_ = std::max(input_floor_, record.input_watermark);
  output_floor_ = std::max(output_floor_, record.output_watermark);
  for (const ElementRun& run : record.consumed) Consume(run.chunk, run.first, run.count);
  for (const CellFired& fired : record.fired) {
    if (cells_) cells_->Commit(fired, times.grouping, live);
  }
  for (uint64_t id : record.residuals_done) {
    auto it = residuals_.find(id);
    if (it == residuals_.end()) continue;
    residual_holds_.Remove(it->second.record.hold);
    residuals_.erase(it);
    removed_residuals_.push_back(id);
  }
  for (const ResidualRecord& residual : record.residuals) {
    residuals_[next_residual_] = {residual, times.steady + Duration(residual.delay_micros), false};
    residual_holds_.Add(residual.hold);
    if (new_residuals_.size() > 2 * residuals_.size() + 1024) {  // no checkpoint comes
      std::erase_if(new_residuals_, [this](uint64_t id) { return !residuals_.contains(id); });
      removed_residuals_.clear();
    }
    new_residuals_.push_back(next_residual_++);
  }
  for (const Timer& timer : record.timers) timers_.Apply(timer, IsEventTime(timer));
  if (!record.ids.empty())
    dedup_.Commit(seq, record.ids, WallTime{record.wall_micros}, times.steady);
  dedup_.MarkAcked(record.acked_runs);
}

std::optional<Millis> RangeShard::MinHold() const {
  std::optional<Millis> hold = residual_holds_.Min();
  const auto lower = [&hold](std::optional<Millis> other) {
    if (other) hold = hold ? std::min(*hold, *other) : *other;
  };
  if (cells_) lower(cells_->MinHold());
  lower(timers_.MinHold());
  return hold;
}

size_t RangeShard::ready(SteadyTime now) const {
  size_t ready = fifo_.waiting() + keys_.ready() + offered_.size() + (cells_ ? cells_->ready() : 0);
  for (const auto& [id, residual] : residuals_)
    ready += !residual.taken && residual.due <= now ? 1 : 0;
  return ready;
}

size_t RangeShard::waiting() const {
  return fifo_.waiting() + keys_.waiting() + (cells_ ? cells_->waiting() : 0) + offered_.size();
}

bool RangeShard::Quiet() const {
  return chunks_.empty() && offered_.empty() && residuals_.empty() && timers_.empty() &&
         !(cells_ && cells_->ready() > 0);
}

std::optional<Millis> RangeShard::NextProcessingTime(Millis now) const {
  std::optional<Millis> next = timers_.NextProcessing();
  if (cells_) {
    const std::optional<Millis> other = cells_->NextTimer(now);
    if (other) next = next ? std::min(*next, *other) : *other;
  }
  return next;
}

std::optional<SteadyTime> RangeShard::NextResidual(SteadyTime after) const {
  std::optional<SteadyTime> next;
  for (const auto& [id, residual] : residuals_) {
    if (residual.taken || residual.due <= after) continue;
    if (!next || residual.due < *next) next = residual.due;
  }
  return next;
}

const WaitingResidual* RangeShard::residual(uint64_t id) const {
  auto it = residuals_.find(id);
  return it == residuals_.end() ? nullptr : &it->second;
}

}  // namespace millrace::engine
