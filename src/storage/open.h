// Opens a data directory (or memory) as one commit log with its store.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "storage/checkpoint.h"
#include "storage/commit_log.h"
#include "storage/file.h"
#include "storage/store.h"

namespace millrace::storage {

struct OpenOptions {
  std::string directory;
  Durability durability = Durability::kSync;
  uint64_t min_free_bytes = 512ull << 20;
  uint64_t segment_bytes = 128ull << 20;
  std::shared_ptr<Files> files;              // null: real ones, and the directory is locked
  uint64_t checkpoint_bytes = 256ull << 20;  // of log between checkpoints
  size_t entry_cache_bytes = 64ull << 20;    // bodies of recent entries kept in memory
};

// The parts of an opened storage. Destroy after everything that uses them; call Close first.
struct Storage {
  std::unique_ptr<CommitLog> log;
  std::unique_ptr<Store> store;
  std::unique_ptr<Checkpointer> checkpointer;
  // Last checkpoint, then the log's close. Shards must still be able to answer.
  Status Close();
  ~Storage();
  std::shared_ptr<void> flush_gate;  // while it lives, the store's flushes sync the log first
  std::shared_ptr<void> lock;        // the directory's lock
};

// Each failure is one sentence that says what to do: locked by another process (with its pid), not
// writable, corrupt (file and place named), written by a newer version.
StatusOr<std::unique_ptr<Storage>> OpenDirectory(const OpenOptions& options);
// Nothing is kept; replay finds nothing.
std::unique_ptr<Storage> OpenInMemory();

}  // namespace millrace::storage
