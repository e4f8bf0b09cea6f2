// What is out for delivery: which session holds which message, until when.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/task.h"

namespace millrace::pubsub {

using SessionId = uint64_t;  // 0: unary pulls, which have no credit
inline constexpr SessionId kUnarySession = 0;

// Leases that ended together: neighbouring offsets of one run. `sizes` are their messages' sizes,
// valid during the callback.
struct ReleasedLeases {
  uint64_t first = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
  SessionId session = kUnarySession;
  const uint32_t* sizes = nullptr;
};

// A lease is volatile: never written, gone after a crash, whereupon its message is redelivered. A
// message has one lease at a time. Leases are kept per delivered run (one epoch for each run, never
// used twice, also not after a restart), so a run of any length costs one entry in every index, and
// 4 bytes and one bit a message. Deadlines are rounded up to kTick and kept apart per message only
// once a deadline change split the run. Belongs to one subscription shard and its executor. Does
// not know what becomes of a message whose lease ends, nor credit.
class LeaseTable {
 public:
  static constexpr int64_t kTickMicros = 10'000;
  static constexpr uint32_t kRunMax = 4096;  // span of a run in offsets
  using Visit = FunctionRef<void(const ReleasedLeases&)>;

  explicit LeaseTable(uint64_t boot_generation) : next_epoch_((boot_generation << 40) + 1) {}
  ~LeaseTable();
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // Starts a run at `first` and returns its epoch. `again`: messages delivered before.
  uint64_t Open(uint64_t first, SessionId session, SteadyTime deadline, bool again);
  // Leases the next message of the run opened last. False: too far from its start, open another
  // one.
  bool Add(uint64_t offset, uint32_t size);

  // Ends the leases of [first, first + count) that were granted under `epoch`.
  void Release(uint64_t epoch, uint64_t first, uint32_t count, Visit visit);
  // Ends whatever lease one message has, of any epoch. False: it has none.
  bool ReleaseOffset(uint64_t offset, Visit visit);
  // Ends all leases of a session.
  void ReleaseSession(SessionId session, Visit visit);
  // Ends leases whose deadline has come, in no special order.
  void ReleaseDue(SteadyTime now, Visit visit);
  // Ends everything without a word.
  void Clear();

  // New deadline for those of [first, first + count) that are leased under `epoch`.
  void Extend(uint64_t epoch, uint64_t first, uint32_t count, SteadyTime deadline);

  uint64_t outstanding() const { return outstanding_; }
  size_t runs() const { return runs_.size(); }
  // No lease ends before; SteadyTime::Max() when there is none.
  SteadyTime NextDeadline() const;

 private:
  struct Run {
    uint64_t epoch = 0, first = 0;
    SessionId session = kUnarySession;
    int64_t tick = 0;   // no deadline of the run is earlier
    uint32_t left = 0;  // leases that have not ended
    bool again = false;
    absl::InlinedVector<uint64_t, 1> leased;  // bit i: first + i
    absl::InlinedVector<uint32_t, 2> sizes;
    std::unique_ptr<std::vector<int64_t>> ticks;  // per message, once deadlines differ
    Run *due_previous = nullptr, *due_next = nullptr;
    Run *session_previous = nullptr, *session_next = nullptr;

    bool Leased(uint32_t i) const { return (leased[i / 64] >> (i % 64)) & 1; }
  };

  Run* Find(uint64_t epoch);
  // Ends leases [from, to) of the run, visiting neighbours together; drops the run when nothing is
  // left of it.
  void End(Run* run, uint32_t from, uint32_t to, Visit visit);
  void Drop(Run* run);
  void LinkDue(Run* run);
  void UnlinkDue(Run* run);
  void ReleaseDueOf(Run* run, int64_t now_tick, Visit visit);

  uint64_t next_epoch_;
  uint64_t outstanding_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Run>> runs_;
  Run* newest_ = nullptr;               // opened last, if it still stands
  Run* found_ = nullptr;                // found last: acks come in runs
  absl::btree_map<int64_t, Run*> due_;  // tick → runs of that tick
  absl::flat_hash_map<SessionId, Run*> sessions_;
  // Finds a lease by its offset alone. First deliveries: runs apart from each other. Redelivered
  // ones lie scattered inside older runs, hence one by one.
  absl::btree_map<uint64_t, Run*> by_first_;
  absl::flat_hash_map<uint64_t, Run*> by_offset_;
};

}  // namespace millrace::pubsub
