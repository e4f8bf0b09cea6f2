#include "engine/bundle_commit.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/rows.h"
#include "engine/side_inputs.h"

namespace millrace::engine {

using windowing::Millis;

BundleCommit::BundleCommit(Parts parts)
    : parts_(std::move(parts)),
      consumers_(parts_.plan->collections.size()),
      side_consumers_(parts_.plan->collections.size()) {
  for (auto& stage : *parts_.stages) {
    for (CollectionId input : stage->spec->inputs) consumers_[input.value].push_back(stage.get());
    for (size_t i = 0; i < stage->spec->side_inputs.size(); ++i) {
      const SideInputSpec& side = stage->spec->side_inputs[i];
      side_consumers_[side.collection.value].push_back({stage.get(), i, side.multimap});
    }
  }
}

RangeTimes BundleCommit::TimesOf(const StageState& stage) const {
  RangeTimes times;
  times.steady = parts_.clock->SteadyNow();
  times.wall = parts_.clock->WallNow();
  times.grouping = {parts_.keeper->input(stage.id), parts_.keeper->output(stage.id),
                    times.wall.micros / 1000};
  // What the watermark says is complete must also be readable: rows are written when durable.
  times.side_ready = stage.side_ordinal > durable_ ? INT64_MIN : parts_.keeper->SideReady(stage.id);
  return times;
}

void BundleCommit::UpdateBounds(const StageState& stage) {
  ProgressKeeper::Bounds bounds;
  const auto lower = [](std::optional<Millis>& into, std::optional<Millis> value) {
    if (value) into = into ? std::min(*into, *value) : *value;
  };
  for (const auto& range : stage.ranges) {
    lower(bounds.pending, range->MinPending());
    lower(bounds.hold, range->MinHold());
  }
  parts_.keeper->SetBounds(stage.id, bounds);
}

void BundleCommit::Commit(std::vector<RangeRecord> records, Task on_durable) {
  parts_.before_append();
  const uint64_t ordinal = ++ordinal_;
  std::vector<storage::Record> appended;
  std::vector<uint64_t> seqs;
  storage::WriteBatch writes;  // rows that readers see at once, hence only when durable
  for (RangeRecord& part : records) {
    seqs.push_back(part.range->next_seq());
    appended.push_back(
        {part.range->id(), seqs.back(), SharedBytes(part.record.Serialize()), std::nullopt});
    AppendSides(*part.range, seqs.back(), part.record, writes);
    if (part.record.state.empty()) continue;
    StatusOr<storage::WriteBatch> state = storage::WriteBatch::Parse(part.record.state);
    MR_CHECK(state.ok());
    writes.Append(*state);
  }
  if (parts_.faults.ack_before_commit && on_durable) std::exchange(on_durable, nullptr)();
  parts_.log->Append(std::move(appended),
                     parts_.on_executor([this, ordinal, writes = std::move(writes),
                                         effects = std::move(on_durable)]() mutable {
                       OnDurable(ordinal, writes);
                       if (effects) effects();
                       parts_.became_durable();
                     }));
  for (size_t i = 0; i < records.size(); ++i) {
    StageState& stage = *(*parts_.stages)[StageOfShard(records[i].range->id())];
    Apply(stage, *records[i].range, seqs[i], records[i].record, true);
  }
}

void BundleCommit::OnDurable(uint64_t ordinal, const storage::WriteBatch& writes) {
  durable_ = std::max(durable_, ordinal);
  if (!writes.empty()) MR_CHECK(parts_.store->Write(writes).ok());
}

void BundleCommit::AppendSides(const RangeShard& from, uint64_t seq, const BundleRecord& record,
                               storage::WriteBatch& batch) {
  for (size_t i = 0; i < record.outputs.size(); ++i) {
    const uint32_t collection = record.outputs[i].collection().value;
    if (collection >= side_consumers_.size()) continue;
    for (const SideConsumer& side : side_consumers_[collection]) {
      std::string name;
      windowing::AppendBigEndian64(name, from.id().uid);
      windowing::AppendBigEndian64(name, seq);
      windowing::AppendBigEndian32(name, static_cast<uint32_t>(i));
      AppendSideRows(record.outputs[i], parts_.job, side.stage->id, side.index, side.multimap, name,
                     batch);
      side.stage->side_ordinal = ordinal_;
    }
  }
}

void BundleCommit::Barrier(Task on_durable) {
  parts_.log->Append({}, parts_.on_executor(std::move(on_durable)));
}

Status BundleCommit::Replay(StageState& stage, RangeShard& range, uint64_t seq,
                            const SharedBytes& payload) {
  if (seq <= range.applied_seq()) return OkStatus();
  if (seq != range.applied_seq() + 1)
    return DataLoss("engine: a record of a range is missing in the log");
  MR_ASSIGN_OR_RETURN(BundleRecord record, BundleRecord::Parse(payload));
  if (parts_.faults.lose_outputs_on_replay) record.outputs.clear();
  storage::WriteBatch writes;
  AppendSides(range, seq, record, writes);
  if (!record.state.empty()) {
    MR_ASSIGN_OR_RETURN(storage::WriteBatch state, storage::WriteBatch::Parse(record.state));
    writes.Append(state);
  }
  if (!writes.empty()) MR_RETURN_IF_ERROR(parts_.store->Write(writes));
  Apply(stage, range, seq, record, false);
  return OkStatus();
}

void BundleCommit::Apply(StageState& stage, RangeShard& range, uint64_t seq,
                         const BundleRecord& record, bool live) {
  RangeTimes times = TimesOf(stage);
  if (!live) {
    parts_.keeper->SetFloor(stage.id, record.input_watermark, record.output_watermark);
    times = TimesOf(stage);
  }
  if (parts_.faults.forget_ids && !record.ids.empty()) {
    BundleRecord forgetful = record;
    forgetful.ids.clear();
    for (const IdHash& id : record.ids) range.dedup().Abandon(id);
    range.Apply(seq, forgetful, times, live);
  } else {
    range.Apply(seq, record, times, live);
  }
  for (const Metric& metric : record.metrics) parts_.committed->Merge(metric);
  for (size_t i = 0; i < record.outputs.size(); ++i) {
    Route(record.outputs[i], seq + i + range.index(), live ? Arrival::kLive : Arrival::kReplay);
  }
  if (live) UpdateBounds(stage);
}

void BundleCommit::Route(const PackedChunk& chunk, uint64_t spread, Arrival how) {
  const uint32_t collection = chunk.collection().value;
  if (collection >= consumers_.size()) return;
  parts_.committed->Count(parts_.plan->collections[collection].name,
                          static_cast<int64_t>(chunk.size()));
  for (StageState* stage : consumers_[collection]) {
    Deliver(*stage, chunk, spread, how);
    if (how == Arrival::kLive) UpdateBounds(*stage);
  }
}

// Keyed input goes to the ranges by key, other input whole to one range after another.
void BundleCommit::Deliver(StageState& to, const PackedChunk& chunk, uint64_t spread, Arrival how) {
  const RangeTimes times = TimesOf(to);
  const bool grouped = to.spec->input == InputKind::kGrouped;
  if (!grouped && !to.spec->keyed) {
    to.ranges[spread % to.ranges.size()]->Deliver(std::make_shared<const PackedChunk>(chunk),
                                                  ordinal_, times, how);
    return;
  }
  std::vector<PackedChunk> parts(to.ranges.size(), PackedChunk::Part(chunk));
  windowing::Header header;
  for (size_t i = 0; i < chunk.size(); ++i) {
    if (!chunk.ReadHeader(i, &header)) continue;
    PackedChunk& part =
        parts.size() == 1 ? parts[0] : parts[StableHash(chunk.Key(i)) % parts.size()];
    if (!grouped) {
      part.AddFrom(chunk, i, header.timestamp);
      continue;
    }
    for (uint32_t w = 0; w < header.windows.size(); ++w)
      part.AddFrom(chunk, i, header.timestamp, w);
  }
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].empty())
      to.ranges[r]->Deliver(std::make_shared<const PackedChunk>(std::move(parts[r])), ordinal_,
                            times, how);
  }
}

}  // namespace millrace::engine
