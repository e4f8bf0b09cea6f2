// What waits in a range of a stage whose input is elements as they come, and how bundles are cut
// from it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/chunk_table.h"

namespace millrace::engine {

// How much of a bundle is still free.
struct Budget {
  size_t elements = 0, bytes = 0;
  bool empty() const { return elements == 0 || bytes == 0; }
  // At least one element fits: a bundle that holds nothing yet takes whatever comes first.
  void Spend(size_t n, size_t size) {
    elements -= n < elements ? n : elements;
    bytes -= size < bytes ? size : bytes;
  }
};

// Consecutive elements of one chunk.
struct Run {
  StoredChunk* chunk = nullptr;
  uint32_t first = 0, count = 0;
};

// First come, first served, no keys. Single-threaded; owned by a range; the chunks are the range's.
class FifoQueue {
 public:
  // The living elements of the chunk.
  void Push(StoredChunk* chunk);
  // Ahead of everything.
  void PutBack(Run run) {
    runs_.push_front(run);
    waiting_ += run.count;
  }
  // Cuts runs until the budget is spent. Needs sizes, hence bodies.
  std::vector<Run> Take(ChunkTable& chunks, Budget& budget);
  // The first chunk whole, if nothing of it was taken; for sinks.
  StoredChunk* Front() const { return runs_.empty() ? nullptr : runs_.front().chunk; }
  void PopFront() {
    waiting_ -= runs_.front().count;
    runs_.pop_front();
  }
  size_t waiting() const { return waiting_; }

 private:
  std::deque<Run> runs_;
  size_t waiting_ = 0;
};

// One key with elements that wait or are being processed.
struct KeyEntry {
  std::string key;
  std::deque<Ref> refs;
  bool busy = false;    // in a bundle that has not ended
  bool queued = false;  // stands in line
  bool timers = false;  // has due timers: they go first
};

// Elements of one key keep their order and are in one bundle at a time; keys take turns.
// Single-threaded; owned by a range.
class KeyQueue {
 public:
  void Push(ChunkTable& chunks, StoredChunk* chunk);
  // The next key in line that is not busy, now busy; null if there is none. The caller takes its
  // timers or elements.
  KeyEntry* Next();
  // Makes this key busy; null if it is.
  KeyEntry* TryLock(std::string_view key);
  // Some of the key's first elements, until the budget is spent.
  std::vector<Ref> TakeElements(ChunkTable& chunks, KeyEntry* entry, Budget& budget);
  void PutBack(KeyEntry* entry, const std::vector<Ref>& refs);
  // The bundle with the key has ended. The pointer may be dead now.
  void Release(KeyEntry* entry);
  // The key has due timers.
  void TimersDue(const std::string& key);
  size_t waiting() const { return waiting_; }
  size_t ready() const { return line_.size(); }  // keys

 private:
  KeyEntry* EntryOf(std::string_view key);
  void Enqueue(KeyEntry* entry);

  absl::flat_hash_map<std::string_view, std::unique_ptr<KeyEntry>>
      keys_;  // views of the entries' own keys
  std::deque<KeyEntry*> line_;
  size_t waiting_ = 0;  // elements not taken
};

}  // namespace millrace::engine
