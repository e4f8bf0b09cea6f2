// Frees space: finds out what of a sealed segment still lives, moves little that lives to the log's
// head, recycles the segment.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "storage/commit_log.h"
#include "storage/commit_log/segment_table.h"
#include "storage/commit_log/spares.h"
#include "storage/commit_log/writer.h"

namespace millrace::storage {

// Thread-safe; one thread of its own. A segment goes when recovery no longer needs its records and
// no entry in it lives. Living entries of a segment that is nearly dead are first copied, in the
// order of their partitions, and made durable in their new place. How much is counted follows how
// fast the log grows; a full disk makes it hurry.
class SpaceReclaimer {
 public:
  struct Options {
    uint64_t growth_bytes = 32 << 20;            // count again after the log has grown by this
    std::chrono::milliseconds idle_pause{2000};  // or after this, if something may have died
    int segments_per_pass = 4;
  };
  SpaceReclaimer(SegmentTable& table, LogWriter& writer, SpareSegments& spares, Options options);
  ~SpaceReclaimer() { Stop(); }

  void SetReplayPosition(Lsn lsn);
  void SetLiveness(std::shared_ptr<Liveness> liveness);
  void MayHaveDied();
  // A segment has been sealed.
  void Wake();
  // Ends the thread; a relocation that is under way is given up (both places stay).
  void Stop();

 private:
  // What a count found.
  struct Census {
    uint64_t live_bytes = 0;
    bool complete = true;  // false: stopped because too much lives
    std::vector<std::pair<TopicPartition, IndexEntry>> living;
  };

  void Work();
  bool Due() MR_REQUIRES(mutex_);
  // One pass; true if something was freed and more may be.
  bool Pass();
  StatusOr<Census> Count(const SegmentPtr& segment, Liveness& liveness);
  bool CountPage(const std::vector<std::pair<TopicPartition, IndexEntry>>& page, Liveness& liveness,
                 Census& census);
  bool WorthMoving(const SegmentPtr& segment, const Census& census);
  // Copies what lives; true once the copies are durable.
  bool Relocate(const SegmentPtr& segment, const Census& census);
  void Retire(SegmentPtr segment);
  void RecycleRetired();
  // Waits until `*answered` or the end of the thread; false at the end.
  bool stopping() const { return stopping_.load(); }

  SegmentTable& table_;
  LogWriter& writer_;
  SpareSegments& spares_;
  const Options options_;
  std::atomic<bool> stopping_{false};
  std::vector<SegmentPtr> retired_;  // the thread's own: out of the table, perhaps still being read

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Liveness> liveness_ MR_GUARDED_BY(mutex_);
  Lsn replay_position_ MR_GUARDED_BY(mutex_) = 0;
  Lsn last_pass_at_ MR_GUARDED_BY(mutex_) = 0;  // the log's end then
  std::chrono::steady_clock::time_point last_pass_ MR_GUARDED_BY(mutex_);
  bool may_have_died_ MR_GUARDED_BY(mutex_) = false;
  bool changed_segments_ MR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace millrace::storage
