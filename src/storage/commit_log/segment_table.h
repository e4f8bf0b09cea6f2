// All segments of the log, and which of them hold which partition.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/task.h"
#include "storage/commit_log/index.h"
#include "storage/commit_log/segment.h"

namespace millrace::storage {

// Thread-safe. Answers reads from what is durable; the writer adds, the space thread removes. Does
// not write files.
class SegmentTable {
 public:
  explicit SegmentTable(size_t index_cache_bytes) : index_cache_(index_cache_bytes) {}

  struct NewEntry {
    TopicPartition partition;
    IndexEntry entry;
  };
  struct FoundEntry {
    SegmentPtr segment;
    IndexEntry entry;
  };

  // A new segment, growing, or one from the disk with its pages or growing index filled in.
  void Add(SegmentPtr segment);
  // Makes entries of a growing segment visible.
  void AddEntries(const SegmentPtr& segment, const std::vector<NewEntry>& entries, Lsn data_end);
  // How many bytes the index of a growing segment may need.
  uint64_t IndexBytesLimit(const SegmentPtr& segment);
  // The index as it goes to disk. The segment no longer grows.
  EncodedIndex Encode(const SegmentPtr& segment);
  // The index has gone to disk.
  void SetIndexed(const SegmentPtr& segment, std::vector<IndexPage> pages);
  // Nobody finds it any more.
  void Remove(const SegmentPtr& segment);

  // Living or dead entries of `partition` from the one holding `offset` (or the next), in order,
  // until `max_bytes` of bodies, at least one if there is any. Reads index pages, hence may block.
  StatusOr<std::vector<FoundEntry>> Find(TopicPartition partition, uint64_t offset,
                                         size_t max_bytes);
  // Whether there may be any. Never blocks.
  bool Holds(TopicPartition partition, uint64_t offset);
  // Their bodies: neighbours in one read.
  static StatusOr<std::vector<TopicEntry>> ReadBodies(TopicPartition partition,
                                                      const std::vector<FoundEntry>& found);

  // All entries of an indexed segment, one page at a time, in the order of partitions and offsets;
  // stops when `visit` says false.
  Status VisitEntries(const SegmentPtr& segment,
                      FunctionRef<bool(TopicPartition, const std::vector<IndexEntry>&)> visit);

  std::vector<SegmentPtr> All();
  // Indexed ones that end at or before `lsn`; the one not counted for the longest time first.
  std::vector<SegmentPtr> Reclaimable(Lsn lsn);
  // Notes the result of counting; true if three counts in a row found about the same.
  bool NoteCount(const SegmentPtr& segment, uint64_t live_bytes);
  struct Totals {
    uint64_t disk_bytes = 0;
    uint64_t live_bytes = 0;
  };
  Totals Sum();

 private:
  struct Place {
    SegmentPtr segment;
    uint64_t first = 0;
    uint64_t end = 0;
  };
  struct Candidates {
    std::vector<FoundEntry> entries;                      // from growing segments
    std::vector<std::pair<SegmentPtr, IndexPage>> pages;  // still to be read
    uint64_t bound = UINT64_MAX;                          // complete below this offset
    bool empty() const { return entries.empty() && pages.empty() && bound == UINT64_MAX; }
  };
  Candidates Collect(TopicPartition partition, uint64_t offset, size_t max_bytes);
  Status LoadCandidates(uint64_t offset, size_t max_bytes, Candidates& candidates);
  void CollectFrom(const Place& place, TopicPartition partition, uint64_t offset, size_t max_bytes,
                   Candidates& out) MR_REQUIRES(mutex_);
  void Widen(TopicPartition partition, const SegmentPtr& segment, uint64_t first, uint64_t end)
      MR_REQUIRES(mutex_);
  StatusOr<IndexCache::Page> LoadPage(const SegmentPtr& segment, const IndexPage& page);

  IndexCache index_cache_;
  Mutex mutex_;
  std::map<Lsn, SegmentPtr> segments_ MR_GUARDED_BY(mutex_);
  absl::flat_hash_map<TopicPartition, std::vector<Place>> places_ MR_GUARDED_BY(mutex_);
  uint64_t counts_ MR_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace::storage
