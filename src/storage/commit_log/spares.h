// Makes the files that segments are made of, before the writer needs them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task.h"
#include "storage/commit_log/segment.h"

namespace millrace::storage {

// Thread-safe. Holds at most one spare file: allocated and written all over, since a synced write
// into blocks never written costs thirty times one into blocks that were (the file system must log
// the change). A thread of its own makes it and also runs other work that the commit thread must
// not wait for (sealing). A full disk is met here and nowhere else.
class SpareSegments {
 public:
  struct Options {
    std::string directory;
    uint64_t segment_bytes = 0;
    uint64_t min_free_bytes = 0;
  };
  SpareSegments(std::shared_ptr<Files> files, Options options, uint64_t next_number);
  ~SpareSegments();

  // A file that MakeFirst made becomes the spare.
  void Offer(SegmentFile file) { Keep(std::move(file)); }
  // For a new log: allocated now, written all over in the background, ahead of the writer.
  StatusOr<SegmentFile> MakeFirst();
  // The writer will need a segment before long.
  void Want();
  // Waits for the spare. A larger one than usual is made on the spot. Fails only after Stop; on a
  // full disk it waits for room.
  StatusOr<SegmentFile> Take(uint64_t capacity_at_least);
  // Keeps the file as the spare, or removes it.
  void Recycle(SegmentFile file);
  // Runs on the thread after what was posted before; dropped after Stop.
  void Post(Task task);
  // Asks for free space again.
  void CheckRoom();
  bool HasRoomToGrow() const { return has_room_.load(std::memory_order_relaxed); }
  uint64_t DiskBytes() const { return spare_bytes_.load(std::memory_order_relaxed); }
  // Ends the thread: queued work runs, waits end. Idempotent.
  void Stop();

 private:
  void Work();
  void Supply();
  StatusOr<SegmentFile> Make(uint64_t capacity);
  void Keep(SegmentFile file);
  void Fill(File& file, SegmentFile::Filling& filling, uint64_t capacity, FunctionRef<bool()> stop);
  bool Urgent();

  const std::shared_ptr<Files> files_;
  const Options options_;
  std::atomic<uint64_t> next_number_;
  std::atomic<bool> has_room_{true};
  std::atomic<uint64_t> spare_bytes_{0};
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<SegmentFile> spare_ MR_GUARDED_BY(mutex_);
  bool wanted_ MR_GUARDED_BY(mutex_) = false;
  bool full_ MR_GUARDED_BY(mutex_) = false;  // the last attempt failed; the next one is due later
  int waiting_ MR_GUARDED_BY(mutex_) = 0;    // Take calls that block a commit
  std::vector<Task> tasks_ MR_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace millrace::storage
