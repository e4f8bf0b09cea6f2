// The newest entries of all partitions, in memory, so that who follows the head never reads the
// disk.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "storage/types.h"

namespace millrace::storage {

// Thread-safe. Keeps up to `limit_bytes` of bodies, by reference; the entry that was added first
// goes first, hence of each partition the tail is kept without holes. Relocated entries do not
// belong here.
class EntryCache {
 public:
  explicit EntryCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void Add(const TopicEntry& entry);
  // As CommitLog::ReadEntries; nullopt if `offset` lies before what is kept and the disk must be
  // asked.
  std::optional<std::vector<TopicEntry>> Read(TopicPartition partition, uint64_t offset,
                                              size_t max_bytes);

 private:
  // What an entry costs besides its body.
  static constexpr size_t kOverhead = 160;

  const size_t limit_bytes_;
  Mutex mutex_;
  absl::flat_hash_map<TopicPartition, std::deque<TopicEntry>> partitions_ MR_GUARDED_BY(mutex_);
  std::deque<TopicPartition> order_ MR_GUARDED_BY(mutex_);
  size_t bytes_ MR_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace::storage
