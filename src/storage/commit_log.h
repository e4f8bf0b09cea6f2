// The only write-ahead log of the process (DESIGN 3): records of all shards and the messages
// themselves, in commit groups, each one numbered and checksummed frame made durable by one
// fdatasync.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "storage/types.h"

namespace millrace::storage {

enum class Durability {
  kSync,   // durable means: survives a power loss (fdatasync)
  kAsync,  // durable means: survives a crash of the process (write)
};

// Told by the broker which messages are still needed. Called on the log's space thread; the answer
// may come on any thread.
class Liveness {
 public:
  virtual ~Liveness() = default;
  // An entry counts as live if any of its messages is: for each of `entries` (bodies empty) the
  // callback gets how many of its messages are still needed.
  virtual void CountLive(std::vector<TopicEntry> entries,
                         Callback<void(std::vector<uint32_t>)> done) = 0;
};

struct LogStats {
  Lsn durable_end = 0;       // everything below is durable and its callbacks have been called
  uint64_t disk_bytes = 0;   // segments, spare ones included
  uint64_t entry_bytes = 0;  // bodies of entries not yet dead, as far as known
  uint64_t groups = 0;       // commit groups written
};

// Thread-safe. Records are replayed in the order of Append; callbacks run in that order on the
// log's thread and must only post. A write or sync error ends the process: nothing here returns one
// after Open.
class CommitLog {
 public:
  virtual ~CommitLog() = default;

  // Adds `records` to the open group, all in one frame. `on_durable` runs once they are durable. No
  // record: a barrier, which costs no sync of its own when nothing is pending.
  virtual void Append(std::vector<Record> records, Task on_durable) = 0;

  // False when free space is below the reserve (--min-free): growth (publishes, jobs) must then be
  // refused with RESOURCE_EXHAUSTED; acks, deletes and checkpoints go on.
  virtual bool HasRoomToGrow() const = 0;

  // Before the first Append: all records at or after `from`, in order. Entries come with their
  // bodies.
  virtual Status Replay(Lsn from, FunctionRef<Status(Lsn, const Record&)> visit) = 0;

  // Entries of `partition` from the one that holds `offset` (or the next living one after it), in
  // order, until `max_bytes` of bodies (at least one). Empty: nothing living at or after `offset`.
  // Durable entries only. Recent ones come from memory, older ones block on the disk: call it on an
  // executor that may block.
  virtual StatusOr<std::vector<TopicEntry>> ReadEntries(TopicPartition partition, uint64_t offset,
                                                        size_t max_bytes) = 0;
  // The same without blocking: true if the answer is known from memory (`out` holds it, perhaps
  // with fewer entries than the bytes allow; empty: nothing living there), false if the disk is
  // needed.
  virtual bool TryReadEntries(TopicPartition partition, uint64_t offset, size_t max_bytes,
                              std::vector<TopicEntry>* out) = 0;

  // Records below `lsn` are not needed for recovery any more (a checkpoint is durable). Entries
  // stay as long as they live.
  virtual void TruncateBefore(Lsn lsn) = 0;
  // Once, after recovery. Without one every entry lives for ever.
  virtual void SetLiveness(std::shared_ptr<Liveness> liveness) = 0;
  // Something may have died (acks, expired retention, deleted resources): wakes the space thread,
  // which decides how much to do.
  virtual void MayHaveDied() = 0;

  virtual LogStats Stats() const = 0;
  // Writes and syncs what was appended, calls callbacks, stops threads. No Append afterwards.
  virtual void Close() = 0;
};

}  // namespace millrace::storage
