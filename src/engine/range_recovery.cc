// The rows of a range: written at checkpoints, read at recovery.
#include <algorithm>

#include "engine/range_shard.h"
#include "engine/rows.h"

namespace millrace::engine {

using storage::Table;
using storage::UnZigZag;
using storage::ZigZag;

namespace {
constexpr char kMetaVersion = 1;
}

void RangeShard::Checkpoint(storage::WriteBatch& batch) {
  chunks_.Checkpoint(batch);
  if (cells_) cells_->Checkpoint(batch);
  timers_.Checkpoint(batch);
  dedup_.Checkpoint(batch);
  const std::string residual_prefix = RangePrefix(job_, stage_.value, index_, RowKind::kResidual);
  for (uint64_t id : removed_residuals_)
    batch.Delete(Table::kPending, NumberedRow(residual_prefix, id));
  removed_residuals_.clear();
  for (uint64_t id : new_residuals_) {
    auto it = residuals_.find(id);
    if (it == residuals_.end()) continue;
    std::string row;
    storage::PutString(row, it->second.record.transform);
    storage::PutString(row, it->second.record.input);
    storage::PutString(row, it->second.record.element);
    storage::PutVarint(row, ZigZag(it->second.record.delay_micros));
    storage::PutVarint(row, ZigZag(it->second.record.hold));
    batch.Put(Table::kPending, NumberedRow(residual_prefix, id), row);
  }
  new_residuals_.clear();
  if (!changed_ && loaded_) return;
  std::string meta(1, kMetaVersion);
  storage::PutVarint(meta, seq_);
  storage::PutVarint(meta, next_chunk_);
  storage::PutVarint(meta, next_residual_);
  storage::PutVarint(meta, ZigZag(input_floor_));
  storage::PutVarint(meta, ZigZag(output_floor_));
  batch.Put(Table::kPending, RangePrefix(job_, stage_.value, index_, RowKind::kMeta), meta);
  changed_ = false;
  loaded_ = true;
}

Status RangeShard::Load(const RangeTimes& times) {
  MR_ASSIGN_OR_RETURN(
      std::optional<std::string> meta,
      store_.Get(Table::kPending, RangePrefix(job_, stage_.value, index_, RowKind::kMeta)));
  if (!meta) {
    SeedImpulse(times);
    return OkStatus();
  }
  storage::ByteReader in(*meta);
  if (in.Byte() != kMetaVersion) return DataLoss("engine: range written by another version");
  seq_ = in.Varint();
  next_chunk_ = in.Varint();
  next_residual_ = in.Varint();
  input_floor_ = UnZigZag(in.Varint());
  output_floor_ = UnZigZag(in.Varint());
  if (!in.ok()) return DataLoss("engine: malformed row of a range");
  loaded_ = true;
  MR_RETURN_IF_ERROR(chunks_.Load());
  if (cells_) MR_RETURN_IF_ERROR(cells_->LoadRows());
  for (StoredChunk* chunk : chunks_.InOrder()) {
    if (cells_) {
      RangeTimes floors = times;
      floors.grouping.input = input_floor_;
      floors.grouping.output = output_floor_;
      cells_->Arrive(chunk, floors.grouping, Arrival::kLoad);
    } else {
      pending_times_.Add(chunk->min_timestamp);
    }
  }
  MR_RETURN_IF_ERROR(timers_.LoadRows(store_));
  MR_RETURN_IF_ERROR(dedup_.Load(store_, times.steady));
  const std::string prefix = RangePrefix(job_, stage_.value, index_, RowKind::kResidual);
  auto it = store_.NewIterator(Table::kPending, prefix, PrefixEnd(prefix));
  for (it->Seek(prefix); it->Valid(); it->Next()) {
    std::string_view key = it->key();
    key.remove_prefix(prefix.size());
    uint64_t id = 0;
    storage::ByteReader row(it->value());
    ResidualRecord residual;
    residual.transform = std::string(row.String());
    residual.input = std::string(row.String());
    residual.element = std::string(row.String());
    residual.delay_micros = UnZigZag(row.Varint());
    residual.hold = UnZigZag(row.Varint());
    if (!row.ok() || !windowing::ParseBigEndian64(key, &id))
      return DataLoss("engine: malformed row of a residual");
    residual_holds_.Add(residual.hold);
    residuals_[id] = {std::move(residual), times.steady, false};
  }
  return it->status();
}

// The one element of an impulse waits from the start, without a record.
void RangeShard::SeedImpulse(const RangeTimes& times) {
  if (spec_.input != InputKind::kImpulse || index_ != 0) return;
  const CollectionId collection = spec_.outputs.empty() ? CollectionId{} : spec_.outputs.front();
  const windowing::WindowKind kind = windowing::WindowKind::kGlobal;
  std::string_view rest = spec_.impulse;
  windowing::Header header;
  if (!windowing::ParseHeader(rest, kind, &header)) return;
  PackedChunk chunk(collection, kind, SharedBytes(spec_.impulse));
  Border border;
  border.header = static_cast<uint32_t>(spec_.impulse.size() - rest.size());
  border.value = static_cast<uint32_t>(rest.size());
  chunk.Add(border, header.timestamp);
  Deliver(std::make_shared<const PackedChunk>(std::move(chunk)), 0, times, Arrival::kReplay);
}

void RangeShard::Begin(const RangeTimes& times) {
  side_ready_ = times.side_ready;
  if (cells_) {
    cells_->Reconsider(times.grouping, times.side_ready);
  } else {
    for (StoredChunk* chunk : chunks_.InOrder()) Enqueue(chunk);
  }
  for (const std::string& key : timers_.Advance(times.grouping.input, times.grouping.now))
    keys_.TimersDue(key);
}

}  // namespace millrace::engine
