// The commit log on disk.
#pragma once

#include <memory>
#include <string>

#include "storage/commit_log.h"
#include "storage/commit_log/reclaimer.h"
#include "storage/file.h"

namespace millrace::storage {

struct DiskLogOptions {
  std::string directory;
  std::shared_ptr<Files> files;
  Durability durability = Durability::kSync;
  uint64_t min_free_bytes = 0;
  uint64_t segment_bytes = 128ull << 20;
  Lsn replay_position = 0;              // from here on the log must be whole
  size_t entry_cache_bytes = 64 << 20;  // bodies of recent entries
  size_t index_cache_bytes = 8 << 20;
  SpaceReclaimer::Options reclaim;
};

// A CommitLog, and what only its own store needs.
class DiskLog : public CommitLog {
 public:
  // With durability kAsync: makes everything written so far survive a power loss. Otherwise it does
  // already.
  virtual void SyncNow() = 0;
};

// Recovers the log of a directory, or begins one.
StatusOr<std::unique_ptr<DiskLog>> OpenDiskLog(const DiskLogOptions& options);

}  // namespace millrace::storage
