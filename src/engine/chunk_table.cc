#include "engine/chunk_table.h"

#include <algorithm>

#include "base/log.h"
#include "engine/rows.h"

namespace millrace::engine {

using storage::Table;

StoredChunk* ChunkTable::Add(uint64_t number, std::shared_ptr<const PackedChunk> body,
                             uint64_t ordinal) {
  auto chunk = std::make_unique<StoredChunk>();
  chunk->number = number;
  chunk->ordinal = ordinal;
  chunk->size = chunk->live = static_cast<uint32_t>(body->size());
  chunk->bytes = body->content_bytes();
  chunk->min_timestamp = body->min_timestamp();
  chunk->body = std::move(body);
  resident_bytes_ += chunk->bytes;
  waiting_bytes_ += chunk->bytes;
  if (unsaved_.size() > 2 * chunks_.size() + 1024) {  // no checkpoint comes
    std::erase_if(unsaved_, [this](uint64_t old) { return !chunks_.contains(old); });
  }
  unsaved_.push_back(number);
  StoredChunk* added = chunk.get();
  chunks_[number] = std::move(chunk);
  return added;
}

StoredChunk* ChunkTable::Find(uint64_t number) {
  auto it = chunks_.find(number);
  return it == chunks_.end() ? nullptr : it->second.get();
}

bool ChunkTable::Consume(StoredChunk* chunk, uint32_t first, uint32_t count) {
  if (chunk->gone.empty() && count < chunk->size) chunk->gone.resize(chunk->size);
  if (chunk->gone.empty()) {
    chunk->live = 0;
  } else {
    for (uint32_t i = first; i < first + count && i < chunk->size; ++i) {
      if (chunk->gone[i]) continue;
      chunk->gone[i] = true;
      --chunk->live;
    }
  }
  if (chunk->live > 0) {
    if (!chunk->marks_dirty) {
      if (touched_.size() > 2 * chunks_.size() + 1024) {  // no checkpoint comes
        std::erase_if(touched_, [this](uint64_t old) { return !chunks_.contains(old); });
      }
      touched_.push_back(chunk->number);
    }
    chunk->marks_dirty = true;
    return false;
  }
  if (chunk->persisted) removed_.push_back(chunk->number);
  if (chunk->body) resident_bytes_ -= chunk->bytes;
  waiting_bytes_ -= chunk->bytes;
  chunks_.erase(chunk->number);
  return true;
}

std::shared_ptr<const PackedChunk> ChunkTable::Body(StoredChunk* chunk) {
  if (chunk->body) return chunk->body;
  StatusOr<std::optional<std::string>> row =
      store_.Get(Table::kPending, NumberedRow(prefix_, chunk->number));
  if (!row.ok() || !row->has_value()) return nullptr;
  const SharedBytes bytes(std::move(**row));
  storage::ByteReader in(bytes.view());
  PackedChunk body;
  if (!PackedChunk::Parse(in, bytes, &body)) return nullptr;
  chunk->body = std::make_shared<const PackedChunk>(std::move(body));
  resident_bytes_ += chunk->bytes;
  return chunk->body;
}

void ChunkTable::AppendMarks(const StoredChunk& chunk, storage::WriteBatch& batch) const {
  std::string marks((chunk.size + 7) / 8, '\0');
  for (uint32_t i = 0; i < chunk.size; ++i) {
    if (chunk.Gone(i)) marks[i / 8] = static_cast<char>(marks[i / 8] | 1 << i % 8);
  }
  batch.Put(Table::kPending, NumberedRow(marks_prefix_, chunk.number), marks);
}

void ChunkTable::Checkpoint(storage::WriteBatch& batch) {
  for (uint64_t number : unsaved_) {
    StoredChunk* chunk = Find(number);
    if (chunk == nullptr || chunk->persisted) continue;
    std::string row;
    chunk->body->AppendTo(row);
    batch.Put(Table::kPending, NumberedRow(prefix_, number), row);
    chunk->persisted = true;
  }
  unsaved_.clear();
  for (uint64_t number : touched_) {
    StoredChunk* chunk = Find(number);
    if (chunk == nullptr) continue;
    AppendMarks(*chunk, batch);
    chunk->marks_dirty = false;
  }
  touched_.clear();
  for (uint64_t number : removed_) {
    batch.Delete(Table::kPending, NumberedRow(prefix_, number));
    batch.Delete(Table::kPending, NumberedRow(marks_prefix_, number));
  }
  removed_.clear();
}

// The oldest are needed first, so the newest leave.
StatusOr<size_t> ChunkTable::Spill(size_t want, uint64_t durable_ordinal) {
  size_t freed = 0;
  std::vector<StoredChunk*> order = InOrder();
  storage::WriteBatch batch;
  std::vector<StoredChunk*> leaving;
  for (auto it = order.rbegin(); it != order.rend() && freed < want; ++it) {
    StoredChunk* chunk = *it;
    if (!chunk->body || chunk->ordinal > durable_ordinal) continue;
    if (!chunk->stored) {
      std::string row;
      chunk->body->AppendTo(row);
      batch.Put(Table::kPending, NumberedRow(prefix_, chunk->number), row);
    }
    freed += chunk->bytes;
    leaving.push_back(chunk);
  }
  if (!batch.empty()) MR_RETURN_IF_ERROR(store_.Write(batch));
  for (StoredChunk* chunk : leaving) {
    chunk->persisted = chunk->stored = true;
    chunk->body.reset();
  }
  resident_bytes_ -= freed;
  return freed;
}

Status ChunkTable::Load() {
  auto it = store_.NewIterator(Table::kPending, prefix_, PrefixEnd(prefix_));
  for (it->Seek(prefix_); it->Valid(); it->Next()) {
    std::string_view key = it->key();
    key.remove_prefix(prefix_.size());
    uint64_t number = 0;
    const SharedBytes bytes{std::string(it->value())};
    storage::ByteReader in(bytes.view());
    PackedChunk body;
    if (!windowing::ParseBigEndian64(key, &number) || !PackedChunk::Parse(in, bytes, &body)) {
      return DataLoss("engine: malformed row of pending elements");
    }
    StoredChunk* chunk = Add(number, std::make_shared<const PackedChunk>(std::move(body)), 0);
    chunk->persisted = chunk->stored = true;
  }
  MR_RETURN_IF_ERROR(it->status());
  unsaved_.clear();
  return LoadMarks();
}

Status ChunkTable::LoadMarks() {
  auto it = store_.NewIterator(Table::kPending, marks_prefix_, PrefixEnd(marks_prefix_));
  for (it->Seek(marks_prefix_); it->Valid(); it->Next()) {
    std::string_view key = it->key();
    key.remove_prefix(marks_prefix_.size());
    uint64_t number = 0;
    if (!windowing::ParseBigEndian64(key, &number))
      return DataLoss("engine: malformed row of marks");
    StoredChunk* chunk = Find(number);
    const std::string marks(it->value());
    if (chunk == nullptr || marks.size() * 8 < chunk->size) continue;
    for (uint32_t i = 0; i < chunk->size; ++i) {
      if ((marks[i / 8] >> i % 8 & 1) != 0 && Consume(chunk, i, 1)) break;
    }
  }
  return it->status();
}

std::vector<StoredChunk*> ChunkTable::InOrder() {
  std::vector<StoredChunk*> order;
  order.reserve(chunks_.size());
  for (auto& [number, chunk] : chunks_) order.push_back(chunk.get());
  std::sort(order.begin(), order.end(),
            [](const StoredChunk* a, const StoredChunk* b) { return a->number < b->number; });
  return order;
}

}  // namespace millrace::engine
