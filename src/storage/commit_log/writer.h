// The commit thread: takes what was appended, writes it as one frame, syncs it, calls back.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/task.h"
#include "storage/commit_log.h"
#include "storage/commit_log/entry_cache.h"
#include "storage/commit_log/frame.h"
#include "storage/commit_log/segment_table.h"
#include "storage/commit_log/spares.h"

namespace millrace::storage {

// Thread-safe. While one group is written and synced the next one fills; an idle writer starts at
// once. Callbacks run on the commit thread in the order of Append. Makes segments from spares and
// hands full ones over to be sealed; does not decide what may go.
class LogWriter {
 public:
  struct Options {
    Durability durability = Durability::kSync;
    uint32_t boot = 1;
  };
  // Where recovery found the end.
  struct Start {
    SegmentPtr segment;  // to go on in; null: begin a new one at `next_base`
    Lsn next_base = 0;
    Lsn end = 0;  // behind the last frame
  };
  LogWriter(SegmentTable& table, EntryCache& cache, SpareSegments& spares, Options options,
            Start start, Callback<void()> on_sealed);
  // What was not committed is lost, as in a crash; its callbacks never run.
  ~LogWriter();

  void Append(std::vector<Record> records, Task on_durable);
  // Copies of entries already in the log. Synced whatever the durability: their old places are
  // given up afterwards.
  void AppendRelocated(std::vector<TopicEntry> entries, Task on_durable);
  // Makes everything written so far survive a power loss. Blocks.
  void SyncNow();
  // Writes the index of a full segment to its end, on the spares' thread.
  void Seal(SegmentPtr segment);
  // Commits what was appended, then ends the thread.
  void Close();

  Lsn durable_end() const { return durable_end_.load(std::memory_order_acquire); }
  uint64_t groups() const { return groups_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    std::vector<Record> records;
    std::vector<TopicEntry> relocated;
    Task on_durable;
    bool sync = false;
    size_t bytes = 0;
  };

  void Enqueue(Pending pending);
  void Work();
  void Commit(std::vector<Pending>& group);
  bool WriteFrame(bool force_sync);
  bool MakeRoom();
  bool Roll(uint64_t frame_bytes);
  void Sync();
  void Publish(uint64_t frame_offset);

  SegmentTable& table_;
  EntryCache& cache_;
  SpareSegments& spares_;
  const Options options_;
  Callback<void()> on_sealed_;  // on the spares' thread
  std::atomic<Lsn> durable_end_;
  std::atomic<uint64_t> groups_{0};

  // The commit thread's own.
  FrameBuilder builder_;
  SegmentPtr segment_;
  uint64_t offset_ = 0;  // in segment_, behind the last frame
  std::string header_;   // of segment_, to be written with its first frame
  SegmentPtr full_;      // to be sealed once segment_ has a durable frame
  Lsn next_base_ = 0;
  Lsn end_ = 0;             // behind the last frame
  Lsn synced_end_ = 0;      // everything below is synced
  uint64_t unchecked_ = 0;  // bytes written since free space was looked at

  Mutex mutex_;
  CondVar ready_;
  std::vector<Pending> queue_ MR_GUARDED_BY(mutex_);
  bool closed_ MR_GUARDED_BY(mutex_) = false;
  bool abandoned_ MR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace millrace::storage
