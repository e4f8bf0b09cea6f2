// Store in memory: ordered maps with versions, for --in-memory and for tests. No RocksDB, clean
// under ThreadSanitizer.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/store.h"

namespace millrace::storage {

// Thread-safe. Every key holds its versions newest last; those no view can see are dropped by later
// writes. Nothing outlives the object, but RevertToFlushed plays a crash: tests keep the store and
// reopen what stands on it.
class MemoryStore : public Store {
 public:
  // With `keep_flushed` the state of the last Flush is kept for RevertToFlushed.
  explicit MemoryStore(bool keep_flushed = false);
  ~MemoryStore() override;

  StatusOr<std::optional<std::string>> Get(Table table, std::string_view key,
                                           const ReadView* view) override;
  std::unique_ptr<Iterator> NewIterator(Table table, std::string_view begin, std::string_view end,
                                        const ReadView* view) override;
  std::shared_ptr<const ReadView> NewReadView() override;
  Status Write(const WriteBatch& batch) override;
  Status Flush() override;

  // Forgets all writes since the last Flush (all, if there was none). No view or iterator may be
  // open.
  void RevertToFlushed();

 private:
  class View;
  class Cursor;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::storage
