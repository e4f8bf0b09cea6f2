// The file layer under the commit log. Real files in production; the simulator's faulty layer
// (testing/faulty_files.h) loses or tears what was not synced at a crash, fails, or is slow.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace::storage {

// One open file. Not thread-safe for writes; ReadAt may run beside them.
class File {
 public:
  virtual ~File() = default;
  virtual Status WriteAt(uint64_t offset, std::string_view bytes) = 0;
  // Several pieces one after another in one call.
  virtual Status WriteAtV(uint64_t offset, const std::vector<std::string_view>& pieces) = 0;
  // Fewer bytes than asked only at the end of the file.
  virtual StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t size) = 0;
  // fdatasync: contents and the size needed to read them.
  virtual Status Sync() = 0;
  // Reserves blocks; RESOURCE_EXHAUSTED when the disk is full.
  virtual Status Allocate(uint64_t size) = 0;
  virtual StatusOr<uint64_t> Size() = 0;
};

// Thread-safe.
class Files {
 public:
  virtual ~Files() = default;
  virtual StatusOr<std::unique_ptr<File>> Open(const std::string& path, bool create) = 0;
  virtual StatusOr<std::vector<std::string>> List(
      const std::string& directory) = 0;  // names, unordered
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  virtual Status MakeDirectory(const std::string& path) = 0;  // parents too; OK if there
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual StatusOr<uint64_t> FreeBytes(const std::string& path) = 0;
};

std::shared_ptr<Files> RealFiles();

}  // namespace millrace::storage
