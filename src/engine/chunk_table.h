// The chunks that wait in one range: which of their elements are gone, which bodies are in memory,
// which rows are in Store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/chunk.h"
#include "storage/store.h"

namespace millrace::engine {

struct StoredChunk {
  uint64_t number = 0;
  uint64_t ordinal =
      0;  // of the commit that brought it; durable when the job's durable ordinal is there
  uint32_t size = 0, live = 0;
  size_t bytes = 0;
  windowing::Millis min_timestamp = 0;
  std::vector<bool> gone;                       // empty: none
  bool persisted = false, marks_dirty = false;  // has, or will have, a row
  bool stored = false;                          // the row can be read now
  std::shared_ptr<const PackedChunk> body;      // null: only in Store

  bool Gone(uint32_t i) const { return !gone.empty() && gone[i]; }
};

// One element of a stored chunk.
struct Ref {
  StoredChunk* chunk = nullptr;
  uint32_t index = 0;
};

// Single-threaded; owned by a range. Pointers to chunks are good until their last element is
// consumed.
class ChunkTable {
 public:
  // `prefix` and `marks_prefix`: of the rows of bodies and marks.
  ChunkTable(storage::Store& store, std::string prefix, std::string marks_prefix)
      : store_(store), prefix_(std::move(prefix)), marks_prefix_(std::move(marks_prefix)) {}

  StoredChunk* Add(uint64_t number, std::shared_ptr<const PackedChunk> body, uint64_t ordinal);
  StoredChunk* Find(uint64_t number);
  // Elements are done with; those that are gone already count once. True if that was the last: the
  // pointer is dead now.
  bool Consume(StoredChunk* chunk, uint32_t first, uint32_t count);

  // The elements themselves, from Store if need be. Null only if Store lost them, which is an error
  // of the disk.
  std::shared_ptr<const PackedChunk> Body(StoredChunk* chunk);

  // Rows as of now into `batch`; the next call adds what changes from here on.
  void Checkpoint(storage::WriteBatch& batch);
  // Writes durable bodies to Store and forgets them until `want` bytes are free; returns how many
  // are.
  StatusOr<size_t> Spill(size_t want, uint64_t durable_ordinal);
  // What the last checkpoint left.
  Status Load();

  std::vector<StoredChunk*> InOrder();
  size_t resident_bytes() const { return resident_bytes_; }  // in memory
  size_t waiting_bytes() const { return waiting_bytes_; }    // in all
  bool empty() const { return chunks_.empty(); }

 private:
  void AppendMarks(const StoredChunk& chunk, storage::WriteBatch& batch) const;
  Status LoadMarks();

  storage::Store& store_;
  const std::string prefix_, marks_prefix_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<StoredChunk>> chunks_;
  std::vector<uint64_t> unsaved_;  // without a row
  std::vector<uint64_t> touched_;  // with changed marks
  std::vector<uint64_t> removed_;  // rows to delete
  size_t resident_bytes_ = 0, waiting_bytes_ = 0;
};

}  // namespace millrace::engine
