// Ordered tables: the view of the commit log that outlives memory. Writes have no log of their own:
// whoever writes has made the same facts durable in the CommitLog first, and can write them again
// after a crash (absolute puts and deletes only).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace::storage {

// Stored on disk by name; each is one column family.
enum class Table : uint8_t {
  kMeta,     // format version, replay position
  kBroker,   // catalogue, subscription and topic state
  kJobs,     // job catalogue, plans, artifacts' names
  kPending,  // engine: elements waiting for a bundle, grouped values
  kState,    // engine: user state, side inputs
  kTimers,   // engine: timers and holds
  kDedup,    // ids of messages seen
};
inline constexpr int kTableCount = 7;

// Puts and deletes over several tables, applied atomically. Not thread-safe.
class WriteBatch {
 public:
  struct Op {
    enum Kind : uint8_t { kPut, kDelete, kDeleteRange } kind;
    Table table;
    std::string key;
    std::string value;  // kDeleteRange: the end, exclusive
  };
  void Put(Table table, std::string_view key, std::string_view value);
  void Delete(Table table, std::string_view key);
  // All keys in [begin, end).
  void DeleteRange(Table table, std::string_view begin, std::string_view end);
  void Append(const WriteBatch& other);
  void Clear() {
    ops_.clear();
    bytes_ = 0;
  }
  bool empty() const { return ops_.empty(); }
  size_t bytes() const { return bytes_; }
  const std::vector<Op>& ops() const { return ops_; }
  // A compact form to put into log records; Parse fails on malformed input.
  std::string Serialize() const;
  static StatusOr<WriteBatch> Parse(std::string_view bytes);

 private:
  std::vector<Op> ops_;
  size_t bytes_ = 0;
};

// A consistent state of all tables, unaffected by later writes.
class ReadView {
 public:
  virtual ~ReadView() = default;
};

// Over one table in key order. Not thread-safe. key() and value() are valid until the next move.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual void Seek(std::string_view key) = 0;  // first key ≥ key
  virtual void Next() = 0;
  virtual bool Valid() const = 0;
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  virtual Status status() const = 0;
};

// Thread-safe. Implementations: RocksStore (disk), MemoryStore (tests, --in-memory).
class Store {
 public:
  virtual ~Store() = default;
  virtual StatusOr<std::optional<std::string>> Get(Table table, std::string_view key,
                                                   const ReadView* view = nullptr) = 0;
  // Keys in [begin, end); an empty end means to the end of the table.
  virtual std::unique_ptr<Iterator> NewIterator(Table table, std::string_view begin,
                                                std::string_view end,
                                                const ReadView* view = nullptr) = 0;
  virtual std::shared_ptr<const ReadView> NewReadView() = 0;
  virtual Status Write(const WriteBatch& batch) = 0;
  // Makes all writes so far durable, all tables at one point.
  virtual Status Flush() = 0;
};

}  // namespace millrace::storage
