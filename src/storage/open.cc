#include "storage/open.h"

#include <utility>

#include "base/log.h"
#include "storage/memory_log.h"
#include "storage/memory_store.h"

namespace millrace::storage {

Status Storage::Close() {
  Status status;
  if (checkpointer) status = checkpointer->Close();
  if (log) log->Close();
  checkpointer.reset();
  return status;
}

// The order matters: the checkpointer uses both others.
Storage::~Storage() {
  checkpointer.reset();
  log.reset();
  store.reset();
}

std::unique_ptr<Storage> OpenInMemory() {
  auto storage = std::make_unique<Storage>();
  storage->log = MakeMemoryLog();
  storage->store = std::make_unique<MemoryStore>();
  // No restart will ever read a checkpoint.
  storage->checkpointer = std::make_unique<Checkpointer>(
      *storage->log, *storage->store, Checkpointer::Options{Checkpointer::Options::kNever});
  return storage;
}

}  // namespace millrace::storage
