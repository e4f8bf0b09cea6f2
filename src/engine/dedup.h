// Which source elements were seen: ids of committed ones for the dedup window, ids in flight until
// their bundle commits.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/hash.h"
#include "engine/source.h"
#include "storage/store.h"

namespace millrace::engine {

// A source element on its way into a commit. Volatile: the source gives it again after a crash.
struct SourcePending {
  SourceElement element;
  IdHash id;
  bool has_id = false;
  std::vector<uint64_t> handles;  // the element's own, then those of duplicates that came meanwhile
};

// Guarantee: an id counts as seen from its arrival until at least the dedup window after its commit
// and until the source's acks of it are durable. Ids are told apart by 128-bit hashes.
// Single-threaded; owned by a range.
class DedupTable {
 public:
  DedupTable(std::string row_prefix, Duration window)
      : row_prefix_(std::move(row_prefix)), window_(window) {}

  enum class Seen { kNew, kInFlight, kCommitted };
  struct Verdict {
    Seen seen = Seen::kNew;
    SourcePending* first = nullptr;  // kInFlight
    uint64_t run = 0;                // kCommitted: ack it as one of this run
  };
  Verdict Look(const IdHash& id) const;
  void Begin(SourcePending* pending) { ids_[pending->id] = {pending, 0}; }
  // Given back uncommitted.
  void Abandon(const IdHash& id) { ids_.erase(id); }

  // The ids of a committed bundle: one run, named by the record's seq.
  void Commit(uint64_t run, const std::vector<IdHash>& ids, WallTime wall, SteadyTime now);
  // Acks asked for and answered. When none is open the run is acked, which a later record makes
  // durable.
  void AckAsked(uint64_t run);
  void AckDone(uint64_t run);
  // An ack got lost: the run can no longer be known to be acked as a whole.
  void AckFailed(uint64_t run);
  // Runs acked since the last call, for the record being made; and what such a record says.
  std::vector<uint64_t> TakeAcked();
  void MarkAcked(const std::vector<uint64_t>& runs);

  // Forgets what may be forgotten.
  void Expire(SteadyTime now);
  size_t size() const { return ids_.size(); }

  void Checkpoint(storage::WriteBatch& batch);
  // After a restart every id is kept for a whole window more: its message may come again as late as
  // its lease allows.
  Status Load(storage::Store& store, SteadyTime now);

 private:
  // No broker keeps an unacked message longer: the last resort for runs whose ack was never learned
  // of (a crash).
  static constexpr Duration kUnackedMax = std::chrono::hours(24 * 32);
  struct Place {
    SourcePending* pending = nullptr;
    uint64_t run = 0;
  };
  struct IdRun {
    std::vector<IdHash> ids;
    WallTime wall;
    SteadyTime expiry, last_resort;
    int open_acks = 0;
    bool acked = false, ack_failed = false, has_row = false, dirty = true;
  };
  void Forget(std::map<uint64_t, IdRun>::iterator it);

  const std::string row_prefix_;
  const Duration window_;
  absl::flat_hash_map<IdHash, Place> ids_;
  std::map<uint64_t, IdRun> runs_;
  std::vector<uint64_t> acked_;  // to be told in a record
  std::vector<uint64_t> removed_rows_;
  SteadyTime next_sweep_{};
};

}  // namespace millrace::engine
