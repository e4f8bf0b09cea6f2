// State as one bundle sees it, and how it is laid out in Store.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "engine/bundle_runner.h"
#include "storage/store.h"

namespace millrace::engine {

// Where a stage's state and side inputs lie.
struct StatePlace {
  uint64_t job = 0;
  StageId stage;
  size_t ranges = 1;
  // Transform and side input id of each side input, by position.
  std::vector<std::pair<std::string, std::string>> side_inputs;
};

// Rows of a side input: prefix for (stage, side input), then the window, then for keyed access the
// key.
std::string SideInputPrefix(uint64_t job, StageId stage, size_t side_input);

// Guarantee: reads show the committed view of the first read plus the bundle's own writes; nothing
// of the latter is seen by others before the commit. Any thread may call: the work is done on a
// serial executor of the bundle's own, so the shard is not in the way. Closed by the dispatcher
// when the bundle's result came; calls after that fail.
//
// Rows: one an append, in the order of (attempt, index), so an append reads nothing. A clear
// deletes the rows it finds.
class StateOverlay : public BundleState, public std::enable_shared_from_this<StateOverlay> {
 public:
  StateOverlay(storage::Store& store, Executor& pool, std::shared_ptr<const StatePlace> place,
               uint64_t attempt, size_t page_bytes = 1 << 20);

  void Get(StateKey key, std::string continuation,
           Callback<void(StatusOr<StatePage>)> done) override;
  void Append(StateKey key, std::string data, Callback<void(Status)> done) override;
  void Clear(StateKey key, Callback<void(Status)> done) override;

  // Ends it: `done` gets the bundle's changes as one storage::WriteBatch, on the overlay's
  // executor.
  void Close(Callback<void(StatusOr<storage::WriteBatch>)> done);

 private:
  // Changes of one cell (bag, one key of a multimap).
  struct Cell {
    bool cleared = false;
    std::vector<std::string> appends;
  };
  // Changes of one ordered list.
  struct List {
    std::vector<std::pair<int64_t, int64_t>> cleared;  // half open, of what is in Store
    std::multimap<int64_t, std::string> entries;
  };

  StatusOr<StatePage> Read(const StateKey& key, const std::string& continuation);
  StatusOr<StatePage> ReadCell(const std::string& prefix, const std::string& continuation);
  StatusOr<StatePage> ReadKeys(const std::string& base, const std::string& continuation);
  StatusOr<StatePage> ReadList(const StateKey& key, const std::string& continuation);
  Status Write(const StateKey& key, std::string data);
  Status WriteList(const StateKey& key, std::string_view data);
  Status Erase(const StateKey& key);
  StatusOr<std::string> SideBase(const StateKey& key) const;
  std::string Base(const StateKey& key, char kind) const;
  std::string RowName(std::string prefix, uint32_t index) const;
  Status DeleteRows(const std::string& begin, const std::string& end, storage::WriteBatch& batch);
  StatusOr<storage::WriteBatch> Collect();
  const storage::ReadView* View();

  storage::Store& store_;
  const std::shared_ptr<const StatePlace> place_;
  const uint64_t attempt_;
  const size_t page_bytes_;
  SerialExecutor executor_;

  // Below: on the executor only.
  bool closed_ = false;
  std::shared_ptr<const storage::ReadView> view_;
  std::map<std::string, Cell> cells_;         // by row prefix
  std::map<std::string, bool> maps_cleared_;  // bases of multimaps cleared as a whole
  std::map<std::string, List> lists_;         // by row prefix
};

}  // namespace millrace::engine
