// GroupByKey of one range: values wait in cells of (key, window); the trigger says when a cell's
// pane heads the consuming stage.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/chunk_table.h"
#include "engine/min_tracker.h"
#include "engine/pending.h"
#include "engine/records.h"
#include "storage/store.h"
#include "windowing/strategy.h"

namespace millrace::engine {

struct WindowSlot;

struct Cell {
  std::string key;
  WindowSlot* slot = nullptr;
  uint64_t order = 0;     // by creation in the range
  std::vector<Ref> refs;  // values in order of arrival
  size_t fresh = 0;       // of them, the last so many came after the newest pane
  size_t bytes = 0;
  uint64_t fired_upto = 0;                // chunk number of the newest pane, where panes accumulate
  std::optional<windowing::Millis> hold;  // of elements, combined
  std::optional<windowing::Millis> tracked_hold;  // what stands in the tracker
  std::optional<windowing::Millis>
      timer;  // processing time at which the trigger wants to look again
  windowing::PaneHistory history;
  windowing::TriggerState trigger;
  bool queued = false, taken = false, has_row = false;
};

struct WindowSlot {
  windowing::Window window;
  windowing::Millis side_needed = INT64_MIN;  // where side inputs must have come to
  bool passed = false, expired = false;
  absl::flat_hash_map<std::string_view, std::unique_ptr<Cell>> cells;
};

// A pane that was cut: what it shows and what its commit says. The cell is locked until Commit or
// PutBack.
struct CellPane {
  Cell* cell = nullptr;
  KeyEntry* lock = nullptr;  // keyed stages
  std::vector<Ref> refs;
  windowing::Window window;
  windowing::Pane pane;
  windowing::Millis timestamp = 0;
  CellFired fired;
};

struct GroupingTimes {
  windowing::Millis input = windowing::kMinTimestamp,
                    output = windowing::kMinTimestamp;  // watermarks of the stage
  windowing::Millis now = 0;                            // processing time
};

// kLoad: elements of a checkpoint, which its cells' rows know already. kReplay: of a record;
// nothing gets in line. kLive.
enum class Arrival : uint8_t { kLoad, kReplay, kLive };

// Single-threaded; owned by a range; chunks are the range's. Element values are not touched until a
// pane is encoded.
class CellTable {
 public:
  // `side_needed` tells how far the watermarks of side inputs must be for a window's panes.
  CellTable(const windowing::Strategy& strategy, KeyQueue* keys, ChunkTable& chunks,
            storage::Store& store, std::string row_prefix,
            std::function<windowing::Millis(const windowing::Window&)> side_needed);
  ~CellTable();

  // Takes up a chunk whose entries each stand for one window (bundle_commit makes them so).
  void Arrive(StoredChunk* chunk, const GroupingTimes& times, Arrival how);
  // Watermarks or the clock moved: cells whose trigger says so get in line, those past their
  // lateness go. `side_ready`: where the side inputs are.
  void Advance(const GroupingTimes& times, windowing::Millis side_ready);
  // Cuts the next pane; nothing if none is due.
  std::optional<CellPane> Take(const GroupingTimes& times);
  // The pane is committed (or, at recovery, was).
  void Commit(const CellFired& fired, const GroupingTimes& times, bool live);
  // The pane will be cut anew.
  void PutBack(const CellPane& pane);

  // The key's bundle has ended: its cells may go on.
  void KeyFree(const std::string& key);

  // After recovery: looks at every cell.
  void Reconsider(const GroupingTimes& times, windowing::Millis side_ready);

  size_t ready() const { return line_.size(); }  // panes
  size_t waiting() const { return values_; }
  std::optional<windowing::Millis> MinHold() const { return holds_.Min(); }
  std::optional<windowing::Millis> NextTimer(windowing::Millis after) const;
  uint64_t dropped_late() const { return dropped_late_; }
  uint64_t dropped_closed() const { return dropped_closed_; }
  bool empty() const { return windows_.empty(); }

  void Checkpoint(storage::WriteBatch& batch);
  Status LoadRows();

 private:
  using SlotKey = std::pair<windowing::Millis, windowing::Window>;  // by end

  WindowSlot* SlotOf(const windowing::Window& window);
  Cell* CellOf(WindowSlot* slot, std::string_view key);
  Cell* Find(const windowing::Window& window, std::string_view key);
  Cell* ArriveOne(WindowSlot* slot, const Ref& ref, std::string_view key,
                  windowing::Millis timestamp, const GroupingTimes& times, bool counted);
  windowing::TriggerClock ClockOf(const Cell& cell, const GroupingTimes& times) const;
  void Consider(Cell* cell, const GroupingTimes& times);
  void SetTimer(Cell* cell, const GroupingTimes& times);
  void SetHold(Cell* cell, const GroupingTimes& times);

  bool Collect(Cell* cell, const GroupingTimes& times);
  void Erase(Cell* cell);
  std::string RowOf(const Cell& cell) const;
  void LookAtTimers(const GroupingTimes& times);
  void PassWindows(const GroupingTimes& times);
  void ExpireWindows(const GroupingTimes& times);
  std::optional<CellPane> Cut(Cell* cell, const GroupingTimes& times);

  const windowing::Strategy strategy_;
  const windowing::TriggerMachine machine_;
  KeyQueue* const keys_;  // null: panes of one key may run beside each other
  ChunkTable& chunks_;
  storage::Store& store_;
  const std::string row_prefix_;
  const std::function<windowing::Millis(const windowing::Window&)> side_needed_;

  std::map<SlotKey, std::unique_ptr<WindowSlot>> windows_;
  std::deque<Cell*> line_;
  absl::flat_hash_map<std::string, std::deque<Cell*>> locked_;  // cells that wait for their key
  MinTracker holds_;
  std::set<std::tuple<windowing::Millis, uint64_t, Cell*>> timers_;
  std::map<uint64_t, Cell*> dirty_;  // by order
  std::vector<std::string> removed_rows_;
  uint64_t next_order_ = 1;
  size_t values_ = 0;
  uint64_t dropped_late_ = 0, dropped_closed_ = 0;
  WindowSlot* last_slot_ = nullptr;
  windowing::Millis passed_upto_ = INT64_MIN;  // windows that end up to here have passed
  windowing::Millis side_ready_ = INT64_MAX;
};

// Appends the windowed value KV<K, Iterable<V>> of a pane.
Status EncodePane(const CellPane& pane, ChunkTable& chunks, std::string& out);

}  // namespace millrace::engine
