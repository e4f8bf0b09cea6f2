// A disk in memory that behaves badly when told to: at a crash, what was not synced is lost, kept
// or torn, as a seed decides.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/file.h"

namespace millrace::testing {

// Thread-safe. A crash fixes what the disk holds from then on; the process under test does not
// notice and goes on with its own view (its syncs no longer mean anything), until the test has
// ended it and calls Restart. So a test that learns of a durable record asks crashed() and believes
// only what it heard before.
//
// Fault model: contents change by sectors of 512 bytes, each whole; a sync makes a file's contents
// and size durable; names are made durable by SyncDirectory, and of those that were not, a prefix
// in the order of the calls survives.
class FaultyFiles : public storage::Files {
 public:
  explicit FaultyFiles(uint64_t seed);
  ~FaultyFiles() override;

  StatusOr<std::unique_ptr<storage::File>> Open(const std::string& path, bool create) override;
  StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status MakeDirectory(const std::string& path) override;  // durable at once
  Status SyncDirectory(const std::string& path) override;
  StatusOr<uint64_t> FreeBytes(const std::string& path) override;

  // Crashes during the n-th change or sync from now (1: the next).
  void CrashAfter(uint64_t operations);
  void CrashNow();
  bool crashed() const;
  // The machine comes up again with what the disk holds. Files opened before must be gone.
  void Restart();

  // Allocations and growing writes beyond it fail with RESOURCE_EXHAUSTED.
  void SetCapacity(uint64_t bytes);
  uint64_t UsedBytes() const;
  void SetSyncDelay(std::chrono::microseconds delay);
  // Flips a bit, as a bad disk would.
  void Damage(const std::string& path, uint64_t offset);

 private:
  class OpenFile;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::testing
