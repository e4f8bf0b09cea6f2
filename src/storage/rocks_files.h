// RocksDB over our file layer, so that the simulator's crashes hit the store as they hit the log.
#pragma once

#include <rocksdb/env.h>

#include <atomic>
#include <memory>

#include "storage/file.h"

namespace millrace::storage {

using SyncSwitch = std::shared_ptr<std::atomic<bool>>;

// An environment whose files are `files` (null: RocksDB's own); threads and clock are the system's.
// Must outlive the database. While `syncs` is given and false, syncs do nothing: a database that is
// being created makes some twenty of them, where one per file at the end is enough.
std::unique_ptr<rocksdb::Env> MakeRocksEnv(std::shared_ptr<Files> files, SyncSwitch syncs);

}  // namespace millrace::storage
