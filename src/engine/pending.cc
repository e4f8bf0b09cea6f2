#include "engine/pending.h"

namespace millrace::engine {

void FifoQueue::Push(StoredChunk* chunk) {
  uint32_t first = 0;
  while (first < chunk->size) {
    if (chunk->Gone(first)) {
      ++first;
      continue;
    }
    uint32_t end = first + 1;
    while (end < chunk->size && !chunk->Gone(end)) ++end;
    if (chunk->gone.empty()) end = chunk->size;
    runs_.push_back({chunk, first, end - first});
    waiting_ += end - first;
    first = end;
  }
}

std::vector<Run> FifoQueue::Take(ChunkTable& chunks, Budget& budget) {
  std::vector<Run> taken;
  while (!runs_.empty() && !budget.empty()) {
    Run& run = runs_.front();
    if (run.count <= budget.elements && run.chunk->bytes <= budget.bytes) {
      budget.Spend(run.count, run.chunk->bytes);
      waiting_ -= run.count;
      taken.push_back(run);
      runs_.pop_front();
      continue;
    }
    const std::shared_ptr<const PackedChunk> body = chunks.Body(run.chunk);
    if (!body) return taken;
    Run part{run.chunk, run.first, 0};
    while (part.count < run.count && !budget.empty()) {
      const size_t size = body->borders()[part.first + part.count].size();
      if (size > budget.bytes && (part.count > 0 || !taken.empty())) {
        budget.bytes = 0;
        break;
      }
      budget.Spend(1, size);
      ++part.count;
    }
    if (part.count == 0) break;
    waiting_ -= part.count;
    taken.push_back(part);
    run.first += part.count;
    run.count -= part.count;
    if (run.count == 0) runs_.pop_front();
  }
  return taken;
}

KeyEntry* KeyQueue::EntryOf(std::string_view key) {
  auto it = keys_.find(key);
  if (it != keys_.end()) return it->second.get();
  auto entry = std::make_unique<KeyEntry>();
  entry->key = std::string(key);
  KeyEntry* added = entry.get();
  keys_.emplace(std::string_view(added->key), std::move(entry));
  return added;
}

void KeyQueue::Enqueue(KeyEntry* entry) {
  if (entry->busy || entry->queued) return;
  entry->queued = true;
  line_.push_back(entry);
}

void KeyQueue::Push(ChunkTable& chunks, StoredChunk* chunk) {
  const std::shared_ptr<const PackedChunk> body = chunks.Body(chunk);
  if (!body) return;
  for (uint32_t i = 0; i < chunk->size; ++i) {
    if (chunk->Gone(i)) continue;
    KeyEntry* entry = EntryOf(body->Key(i));
    entry->refs.push_back({chunk, i});
    ++waiting_;
    Enqueue(entry);
  }
}

KeyEntry* KeyQueue::Next() {
  while (!line_.empty()) {
    KeyEntry* entry = line_.front();
    line_.pop_front();
    entry->queued = false;
    if (entry->busy) continue;  // locked since it got in line; its release puts it there again
    entry->busy = true;
    return entry;
  }
  return nullptr;
}

KeyEntry* KeyQueue::TryLock(std::string_view key) {
  KeyEntry* entry = EntryOf(key);
  if (entry->busy) return nullptr;
  entry->busy = true;
  return entry;
}

std::vector<Ref> KeyQueue::TakeElements(ChunkTable& chunks, KeyEntry* entry, Budget& budget) {
  std::vector<Ref> taken;
  while (!entry->refs.empty() && !budget.empty()) {
    const Ref ref = entry->refs.front();
    const std::shared_ptr<const PackedChunk> body = chunks.Body(ref.chunk);
    if (!body) break;
    budget.Spend(1, body->borders()[ref.index].size());
    taken.push_back(ref);
    entry->refs.pop_front();
    --waiting_;
  }
  return taken;
}

void KeyQueue::PutBack(KeyEntry* entry, const std::vector<Ref>& refs) {
  entry->refs.insert(entry->refs.begin(), refs.begin(), refs.end());
  waiting_ += refs.size();
}

void KeyQueue::Release(KeyEntry* entry) {
  entry->busy = false;
  if (!entry->refs.empty() || entry->timers || entry->queued) {
    Enqueue(entry);
  } else {
    auto it = keys_.find(entry->key);
    const std::unique_ptr<KeyEntry> last =
        std::move(it->second);  // the map's key is a view of its key
    keys_.erase(it);
  }
}

void KeyQueue::TimersDue(const std::string& key) {
  KeyEntry* entry = EntryOf(key);
  entry->timers = true;
  Enqueue(entry);
}

}  // namespace millrace::engine
