// Store on disk: RocksDB without a log of its own. What it has not flushed is lost at a crash, all
// tables back to one common point; the commit log holds those writes and replay makes them again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "storage/file.h"
#include "storage/store.h"

namespace millrace::storage {

struct RocksStoreOptions {
  std::string directory;
  // Start anew: what is in the directory, if anything, is an unfinished creation and is removed.
  // Otherwise a store must be there.
  bool create = false;
  std::shared_ptr<Files> files;  // null: RocksDB's own file system
  // Called before anything becomes durable by RocksDB's own decision; may block. Null: nothing to
  // do.
  std::function<void()> before_flush;
  size_t block_cache_bytes = 32ull << 20;  // shared by all tables
  size_t memtable_bytes = 32ull << 20;     // all tables together; more starts a flush
};

// Opens or creates the tables; what was created is durable at return. Errors name the directory.
StatusOr<std::unique_ptr<Store>> OpenRocksStore(const RocksStoreOptions& options);

}  // namespace millrace::storage
