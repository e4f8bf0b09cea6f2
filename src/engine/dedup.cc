#include "engine/dedup.h"

#include <algorithm>
#include <utility>

#include "engine/rows.h"
#include "storage/encoding.h"

namespace millrace::engine {

using storage::Table;

DedupTable::Verdict DedupTable::Look(const IdHash& id) const {
  auto it = ids_.find(id);
  if (it == ids_.end()) return {};
  if (it->second.pending != nullptr) return {Seen::kInFlight, it->second.pending, 0};
  return {Seen::kCommitted, nullptr, it->second.run};
}

void DedupTable::Commit(uint64_t run, const std::vector<IdHash>& ids, WallTime wall,
                        SteadyTime now) {
  IdRun& added = runs_[run];
  added.ids = ids;
  added.wall = wall;
  added.expiry = now + window_;
  added.last_resort = now + window_ + kUnackedMax;
  for (const IdHash& id : ids) ids_[id] = {nullptr, run};
}

void DedupTable::AckAsked(uint64_t run) {
  auto it = runs_.find(run);
  if (it != runs_.end()) ++it->second.open_acks;
}

void DedupTable::AckDone(uint64_t run) {
  auto it = runs_.find(run);
  if (it == runs_.end() || --it->second.open_acks > 0) return;
  if (it->second.acked || it->second.ack_failed) return;
  it->second.acked = it->second.dirty = true;
  acked_.push_back(run);
}

void DedupTable::AckFailed(uint64_t run) {
  auto it = runs_.find(run);
  if (it == runs_.end()) return;
  --it->second.open_acks;
  it->second.ack_failed = true;
}

std::vector<uint64_t> DedupTable::TakeAcked() { return std::exchange(acked_, {}); }

void DedupTable::MarkAcked(const std::vector<uint64_t>& runs) {
  for (uint64_t run : runs) {
    auto it = runs_.find(run);
    if (it != runs_.end()) it->second.acked = it->second.dirty = true;
  }
}

void DedupTable::Forget(std::map<uint64_t, IdRun>::iterator it) {
  for (const IdHash& id : it->second.ids) {
    auto at = ids_.find(id);
    if (at != ids_.end() && at->second.pending == nullptr && at->second.run == it->first)
      ids_.erase(at);
  }
  if (it->second.has_row) removed_rows_.push_back(it->first);
  runs_.erase(it);
}

// Runs stand in order of commit, so those that may go stand first, but for the few without an ack.
void DedupTable::Expire(SteadyTime now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + std::min<Duration>(window_ / 16 + Duration(1), std::chrono::seconds(10));
  for (auto it = runs_.begin(); it != runs_.end();) {
    auto run = it++;
    if (run->second.expiry > now) break;
    if ((run->second.acked && run->second.open_acks <= 0) || run->second.last_resort <= now)
      Forget(run);
  }
}

void DedupTable::Checkpoint(storage::WriteBatch& batch) {
  for (auto& [number, run] : runs_) {
    if (!run.dirty) continue;
    std::string row;
    row.push_back(run.acked ? 1 : 0);
    storage::PutFixed64(row, static_cast<uint64_t>(run.wall.micros));
    for (const IdHash& id : run.ids) {
      storage::PutFixed64(row, id.high);
      storage::PutFixed64(row, id.low);
    }
    batch.Put(Table::kDedup, NumberedRow(row_prefix_, number), row);
    run.dirty = false;
    run.has_row = true;
  }
  for (uint64_t number : removed_rows_)
    batch.Delete(Table::kDedup, NumberedRow(row_prefix_, number));
  removed_rows_.clear();
}

Status DedupTable::Load(storage::Store& store, SteadyTime now) {
  auto it = store.NewIterator(Table::kDedup, row_prefix_, PrefixEnd(row_prefix_));
  for (it->Seek(row_prefix_); it->Valid(); it->Next()) {
    std::string_view key = it->key();
    key.remove_prefix(row_prefix_.size());
    uint64_t number = 0;
    storage::ByteReader in(it->value());
    const bool acked = in.Byte() != 0;
    const WallTime wall{static_cast<int64_t>(in.Fixed64())};
    if (!windowing::ParseBigEndian64(key, &number) || !in.ok() || in.rest().size() % 16 != 0) {
      return DataLoss("engine: malformed row of ids");
    }
    std::vector<IdHash> ids;
    while (!in.empty()) {
      IdHash id;
      id.high = in.Fixed64();
      id.low = in.Fixed64();
      ids.push_back(id);
    }
    Commit(number, ids, wall, now);
    IdRun& run = runs_[number];
    run.acked = acked;
    run.has_row = true;
    run.dirty = false;
  }
  return it->status();
}

}  // namespace millrace::engine
