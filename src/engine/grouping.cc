#include "engine/grouping.h"

#include <algorithm>

#include "base/log.h"
#include "engine/rows.h"
#include "windowing/watermark.h"
#include "windowing/wire.h"

namespace millrace::engine {

using storage::Table;
using windowing::Millis;

CellTable::CellTable(const windowing::Strategy& strategy, KeyQueue* keys, ChunkTable& chunks,
                     storage::Store& store, std::string row_prefix,
                     std::function<Millis(const windowing::Window&)> side_needed)
    : strategy_(strategy),
      machine_(strategy.trigger, strategy.merging),
      keys_(keys),
      chunks_(chunks),
      store_(store),
      row_prefix_(std::move(row_prefix)),
      side_needed_(std::move(side_needed)) {}

CellTable::~CellTable() = default;

WindowSlot* CellTable::SlotOf(const windowing::Window& window) {
  if (last_slot_ != nullptr && last_slot_->window == window) return last_slot_;
  std::unique_ptr<WindowSlot>& slot = windows_[{window.MaxTimestamp(), window}];
  if (!slot) {
    slot = std::make_unique<WindowSlot>();
    slot->window = window;
    slot->side_needed = side_needed_(window);
    slot->passed = window.MaxTimestamp() <= passed_upto_ && slot->side_needed <= side_ready_;
    if (!slot->passed)
      passed_upto_ = std::min(passed_upto_, windowing::SubMillis(window.MaxTimestamp(), 1));
  }
  return last_slot_ = slot.get();
}

Cell* CellTable::CellOf(WindowSlot* slot, std::string_view key) {
  auto it = slot->cells.find(key);
  if (it != slot->cells.end()) return it->second.get();
  auto cell = std::make_unique<Cell>();
  cell->key = std::string(key);
  cell->slot = slot;
  cell->order = next_order_++;
  Cell* added = cell.get();
  slot->cells.emplace(std::string_view(added->key), std::move(cell));
  return added;
}

Cell* CellTable::Find(const windowing::Window& window, std::string_view key) {
  auto slot = windows_.find({window.MaxTimestamp(), window});
  if (slot == windows_.end()) return nullptr;
  auto cell = slot->second->cells.find(key);
  return cell == slot->second->cells.end() ? nullptr : cell->second.get();
}

windowing::TriggerClock CellTable::ClockOf(const Cell& cell, const GroupingTimes& times) const {
  return {times.now, windowing::EndOfWindowPassed(cell.slot->window, times.input)};
}

void CellTable::Arrive(StoredChunk* chunk, const GroupingTimes& times, Arrival how) {
  const std::shared_ptr<const PackedChunk> body = chunks_.Body(chunk);
  if (!body) return;
  windowing::Header header;
  const uint32_t size = chunk->size;
  uint32_t left = chunk->live;
  for (uint32_t i = 0; i < size && left > 0; ++i) {
    if (chunk->Gone(i)) continue;
    --left;
    const uint32_t window = body->borders()[i].window;
    if (!body->ReadHeader(i, &header) || window >= header.windows.size()) {
      chunks_.Consume(chunk, i, 1);
      continue;
    }
    // What a checkpoint holds was taken up in time, whatever fired in its window since.
    if (how != Arrival::kLoad &&
        windowing::IsExpired(header.windows[window], strategy_, times.input)) {
      ++dropped_late_;
      chunks_.Consume(chunk, i, 1);
      continue;
    }
    WindowSlot* slot = SlotOf(header.windows[window]);
    Cell* cell =
        ArriveOne(slot, {chunk, i}, body->Key(i), header.timestamp, times, how != Arrival::kLoad);
    if (how == Arrival::kLive && (slot->passed || !machine_.IsDefault())) Consider(cell, times);
  }
}

// `counted`: the trigger is to learn of it.
Cell* CellTable::ArriveOne(WindowSlot* slot, const Ref& ref, std::string_view key, Millis timestamp,
                           const GroupingTimes& times, bool counted) {
  Cell* cell = CellOf(slot, key);
  if (machine_.IsFinished(cell->trigger)) {
    ++dropped_closed_;
    chunks_.Consume(ref.chunk, ref.index, 1);
    return cell;
  }
  cell->refs.push_back(ref);
  ++values_;
  if (ref.chunk->number > cell->fired_upto) ++cell->fresh;
  if (!machine_.IsDefault() && counted) {
    machine_.OnElements(cell->trigger, ClockOf(*cell, times));
    dirty_[cell->order] = cell;
  }
  const std::optional<Millis> hold =
      windowing::ElementHold(strategy_, slot->window, timestamp, times.input, times.output);
  if (hold) {
    cell->hold = cell->hold ? windowing::CombineTimes(strategy_.output_time, slot->window,
                                                      *cell->hold, *hold)
                            : *hold;
  }
  SetHold(cell, times);
  return cell;
}

// A cell's hold: that of its elements, else what keeps the watermark until its last pane.
void CellTable::SetHold(Cell* cell, const GroupingTimes& times) {
  std::optional<Millis> hold = cell->hold;
  if (!hold)
    hold = windowing::CollectionHold(strategy_, cell->slot->window, cell->fresh == 0, times.output);
  if (hold == cell->tracked_hold) return;
  if (cell->tracked_hold) holds_.Remove(*cell->tracked_hold);
  if (hold) holds_.Add(*hold);
  cell->tracked_hold = hold;
}

void CellTable::SetTimer(Cell* cell, const GroupingTimes& times) {
  const std::optional<Millis> next =
      machine_.IsDefault() ? std::nullopt : machine_.NextTimer(cell->trigger, times.now);
  if (next == cell->timer) return;
  if (cell->timer) timers_.erase({*cell->timer, cell->order, cell});
  if (next) timers_.insert({*next, cell->order, cell});
  cell->timer = next;
}

void CellTable::Consider(Cell* cell, const GroupingTimes& times) {
  if (cell->queued || cell->taken || cell->slot->side_needed > side_ready_) return;
  if (!machine_.IsFinished(cell->trigger) &&
      machine_.ShouldFire(cell->trigger, ClockOf(*cell, times))) {
    cell->queued = true;
    line_.push_back(cell);
  }
  SetTimer(cell, times);
}

void CellTable::LookAtTimers(const GroupingTimes& times) {
  std::vector<Cell*> due;
  for (const auto& [time, order, cell] : timers_) {
    if (time > times.now) break;
    due.push_back(cell);
  }
  for (Cell* cell : due) {
    timers_.erase({*cell->timer, cell->order, cell});
    cell->timer.reset();  // set anew by Consider, or when the cell's pane is committed
    Consider(cell, times);
  }
}

namespace {
std::vector<Cell*> CellsInOrder(const WindowSlot& slot) {
  std::vector<Cell*> cells;
  cells.reserve(slot.cells.size());
  for (const auto& [key, cell] : slot.cells) cells.push_back(cell.get());
  std::sort(cells.begin(), cells.end(),
            [](const Cell* a, const Cell* b) { return a->order < b->order; });
  return cells;
}
}  // namespace

void CellTable::Advance(const GroupingTimes& times, Millis side_ready) {
  const bool more_ready = side_ready > side_ready_;
  side_ready_ = side_ready;
  LookAtTimers(times);
  if (more_ready && !machine_.IsDefault()) {
    for (auto& [key, slot] : windows_) {
      for (Cell* cell : CellsInOrder(*slot)) Consider(cell, times);
    }
  }
  PassWindows(times);
  ExpireWindows(times);
}

// A later window never needs less of the side inputs, so the first that must wait ends the round.
void CellTable::PassWindows(const GroupingTimes& times) {
  const Millis ended = times.input >= windowing::kMaxTimestamp ? INT64_MAX : times.input - 1;
  if (ended <= passed_upto_) return;
  for (auto it = windows_.lower_bound(
           {windowing::AddMillis(passed_upto_, 1), windowing::Window::Global()});
       it != windows_.end() && it->first.first <= ended; ++it) {
    if (it->second->passed) continue;
    if (it->second->side_needed > side_ready_) {
      passed_upto_ = windowing::SubMillis(it->first.first, 1);
      return;
    }
    it->second->passed = true;
    for (Cell* cell : CellsInOrder(*it->second)) Consider(cell, times);
  }
  passed_upto_ = ended;
}

void CellTable::ExpireWindows(const GroupingTimes& times) {
  for (auto it = windows_.begin(); it != windows_.end();) {
    WindowSlot* slot = it->second.get();
    if (!slot->passed || !windowing::IsExpired(slot->window, strategy_, times.input)) return;
    if (!slot->expired) {
      slot->expired = true;
      for (Cell* cell : CellsInOrder(*slot)) {
        if (!cell->queued && !cell->taken && Collect(cell, times)) Erase(cell);
      }
    }
    ++it;
    if (!slot->cells.empty()) continue;
    if (last_slot_ == slot) last_slot_ = nullptr;
    windows_.erase(std::prev(it));
  }
}

// The cell's lateness is over. True if it has nothing more to say; else its last pane stands in
// line.
bool CellTable::Collect(Cell* cell, const GroupingTimes& times) {
  windowing::PaneHistory history = cell->history;
  const windowing::PaneSituation situation{times.input, times.output, cell->fresh == 0, true};
  if (!windowing::EmitPane(strategy_, cell->slot->window, situation, history)) return true;
  cell->queued = true;
  line_.push_back(cell);
  return false;
}

std::optional<CellPane> CellTable::Take(const GroupingTimes& times) {
  while (!line_.empty()) {
    Cell* cell = line_.front();
    line_.pop_front();
    KeyEntry* lock = keys_ == nullptr ? nullptr : keys_->TryLock(cell->key);
    if (keys_ != nullptr && lock == nullptr) {
      locked_[cell->key].push_back(cell);
      continue;
    }
    cell->queued = false;
    std::optional<CellPane> pane = Cut(cell, times);
    if (pane) {
      pane->lock = lock;
      return pane;
    }
    if (lock != nullptr) {
      const std::string key = lock->key;
      keys_->Release(lock);
      KeyFree(key);
    }
  }
  return std::nullopt;
}

std::optional<CellPane> CellTable::Cut(Cell* cell, const GroupingTimes& times) {
  const windowing::Window& window = cell->slot->window;
  const bool expired = windowing::IsExpired(window, strategy_, times.input);
  CellPane pane;
  pane.fired.trigger = cell->trigger;
  pane.fired.history = cell->history;
  const windowing::TriggerClock clock = ClockOf(*cell, times);
  if (!machine_.IsFinished(cell->trigger) && machine_.ShouldFire(cell->trigger, clock)) {
    machine_.OnFire(pane.fired.trigger, clock);
  }
  const bool finished = machine_.IsFinished(pane.fired.trigger);
  const windowing::PaneSituation situation{times.input, times.output, cell->fresh == 0,
                                           expired || finished};
  const std::optional<windowing::Pane> shown =
      windowing::EmitPane(strategy_, window, situation, pane.fired.history);
  if (!shown) {
    cell->trigger = pane.fired.trigger;
    dirty_[cell->order] = cell;
    SetTimer(cell, times);
    if (expired) Erase(cell);
    return std::nullopt;
  }
  cell->taken = true;
  pane.cell = cell;
  pane.refs = cell->refs;
  pane.window = window;
  pane.pane = *shown;
  pane.timestamp = windowing::PaneTimestamp(strategy_, window, cell->hold);
  pane.fired.key = cell->key;
  pane.fired.window = window;
  pane.fired.upto_chunk = cell->refs.empty() ? cell->fired_upto : cell->refs.back().chunk->number;
  pane.fired.erase = expired;
  return pane;
}

void CellTable::Commit(const CellFired& fired, const GroupingTimes& times, bool live) {
  Cell* cell = Find(fired.window, fired.key);
  if (cell == nullptr) return;
  cell->taken = false;
  if (fired.erase) {
    Erase(cell);
    return;
  }
  cell->history = fired.history;
  cell->trigger = fired.trigger;
  cell->fired_upto = fired.upto_chunk;
  const bool keep = strategy_.accumulation == windowing::AccumulationMode::kAccumulating &&
                    !machine_.IsFinished(cell->trigger);
  std::vector<Ref> rest, fresh;
  for (const Ref& ref : cell->refs) {
    if (ref.chunk->number > fired.upto_chunk) {
      fresh.push_back(ref);
    } else if (keep) {
      rest.push_back(ref);
    }
  }
  std::vector<Ref> all = std::move(cell->refs);
  values_ -= all.size();
  cell->refs = std::move(rest);
  cell->fresh = 0;
  cell->hold.reset();
  values_ += cell->refs.size();
  if (!keep) {
    for (const Ref& ref : all) {
      if (ref.chunk->number <= fired.upto_chunk) chunks_.Consume(ref.chunk, ref.index, 1);
    }
  }
  dirty_[cell->order] = cell;
  for (const Ref& ref : fresh) {
    const std::shared_ptr<const PackedChunk> body = chunks_.Body(ref.chunk);
    if (body) ArriveOne(cell->slot, ref, cell->key, body->Timestamp(ref.index), times, true);
  }
  SetHold(cell, times);
  if (!live) return;
  Consider(cell, times);
  if (cell->slot->expired && !cell->queued && Collect(cell, times)) Erase(cell);
}

void CellTable::PutBack(const CellPane& pane) {
  Cell* cell = pane.cell;
  cell->taken = false;
  cell->queued = true;
  line_.push_front(cell);
  if (pane.lock == nullptr) return;
  const std::string key = cell->key;
  keys_->Release(pane.lock);
  KeyFree(key);
}

void CellTable::KeyFree(const std::string& key) {
  auto it = locked_.find(key);
  if (it == locked_.end()) return;
  line_.insert(line_.begin(), it->second.begin(), it->second.end());
  locked_.erase(it);
}

void CellTable::Erase(Cell* cell) {
  for (const Ref& ref : cell->refs) chunks_.Consume(ref.chunk, ref.index, 1);
  values_ -= cell->refs.size();
  if (cell->tracked_hold) holds_.Remove(*cell->tracked_hold);
  if (cell->timer) timers_.erase({*cell->timer, cell->order, cell});
  dirty_.erase(cell->order);
  if (cell->has_row) removed_rows_.push_back(RowOf(*cell));
  WindowSlot* slot = cell->slot;
  auto it = slot->cells.find(cell->key);
  const std::unique_ptr<Cell> last = std::move(it->second);  // the map's key is a view of its key
  slot->cells.erase(it);
}

void CellTable::Reconsider(const GroupingTimes& times, Millis side_ready) {
  side_ready_ = side_ready;
  passed_upto_ = INT64_MIN;
  for (auto& [key, slot] : windows_) {
    slot->passed = slot->expired = false;
    for (Cell* cell : CellsInOrder(*slot)) {
      SetHold(cell, times);
      if (!machine_.IsDefault()) Consider(cell, times);
    }
  }
  Advance(times, side_ready);
}

std::optional<Millis> CellTable::NextTimer(Millis after) const {
  auto it = timers_.lower_bound({windowing::AddMillis(after, 1), 0, nullptr});
  if (it == timers_.end()) return std::nullopt;
  return std::get<0>(*it);
}

std::string CellTable::RowOf(const Cell& cell) const {
  std::string row = row_prefix_;
  AppendWindowTo(row, cell.slot->window);
  row.append(cell.key);
  return row;
}

void CellTable::Checkpoint(storage::WriteBatch& batch) {
  for (auto& [order, cell] : dirty_) {
    std::string value, part;
    storage::PutString(value, cell->key);
    AppendWindowTo(value, cell->slot->window);
    storage::PutVarint(value, cell->fired_upto);
    cell->history.AppendTo(part);
    storage::PutString(value, part);
    part.clear();
    cell->trigger.AppendTo(part);
    storage::PutString(value, part);
    batch.Put(Table::kPending, RowOf(*cell), value);
    cell->has_row = true;
  }
  dirty_.clear();
  for (const std::string& row : removed_rows_) batch.Delete(Table::kPending, row);
  removed_rows_.clear();
}

Status CellTable::LoadRows() {
  auto it = store_.NewIterator(Table::kPending, row_prefix_, PrefixEnd(row_prefix_));
  for (it->Seek(row_prefix_); it->Valid(); it->Next()) {
    storage::ByteReader in(it->value());
    const std::string key(in.String());
    windowing::Window window;
    if (!ParseWindowFrom(in, &window)) return DataLoss("engine: malformed row of a cell");
    const uint64_t upto = in.Varint();
    auto history = windowing::PaneHistory::Parse(in.String());
    auto trigger = windowing::TriggerState::Parse(in.String());
    if (!in.ok() || !history || !trigger) return DataLoss("engine: malformed row of a cell");
    Cell* cell = CellOf(SlotOf(window), key);
    cell->fired_upto = upto;
    cell->history = *history;
    cell->trigger = std::move(*trigger);
    cell->has_row = true;
  }
  return it->status();
}

Status EncodePane(const CellPane& pane, ChunkTable& chunks, std::string& out) {
  windowing::AppendHeader(out, pane.timestamp, pane.window, pane.pane);
  out.append(pane.fired.key);
  windowing::AppendBigEndian32(out, static_cast<uint32_t>(pane.refs.size()));
  for (const Ref& ref : pane.refs) {
    const std::shared_ptr<const PackedChunk> body = chunks.Body(ref.chunk);
    if (!body) return DataLoss("engine: elements that wait for grouping are missing in the store");
    out.append(body->KvValue(ref.index));
  }
  return OkStatus();
}

}  // namespace millrace::engine
