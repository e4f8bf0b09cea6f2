#include "storage/commit_log/segment_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "storage/commit_log/frame.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

constexpr size_t kPlacesAtOnce = 4;      // segments looked into at a time
constexpr uint64_t kReadGap = 16 << 10;  // other bytes read for nothing rather than reading twice
constexpr uint64_t kReadSpan = 1 << 20;

}  // namespace

void SegmentTable::Widen(TopicPartition partition, const SegmentPtr& segment, uint64_t first,
                         uint64_t end) {
  std::vector<Place>& places = places_[partition];
  // The growing segment is the last one, or near it.
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    if (place->segment != segment) continue;
    place->first = std::min(place->first, first);
    place->end = std::max(place->end, end);
    return;
  }
  places.push_back({segment, first, end});
}

void SegmentTable::Add(SegmentPtr segment) {
  MutexLock lock(mutex_);
  if (segment->growing) {
    for (const auto& [partition, entries] : segment->growing->Sorted()) {
      Widen(partition, segment, entries.front().first_offset, entries.back().end_offset());
    }
    segment->body_bytes = segment->growing->body_bytes();
  }
  for (const IndexPage& page : segment->pages) {
    Widen(page.partition, segment, page.first, page.end);
    segment->body_bytes += page.body_bytes;
  }
  segment->live_bytes = segment->body_bytes;
  segments_[segment->base] = std::move(segment);
}

void SegmentTable::AddEntries(const SegmentPtr& segment, const std::vector<NewEntry>& entries,
                              Lsn data_end) {
  MutexLock lock(mutex_);
  segment->data_end = data_end;
  for (const NewEntry& added : entries) {
    segment->growing->Add(added.partition, added.entry);
    segment->body_bytes += added.entry.length;
    segment->live_bytes += added.entry.length;
    Widen(added.partition, segment, added.entry.first_offset, added.entry.end_offset());
  }
}

uint64_t SegmentTable::IndexBytesLimit(const SegmentPtr& segment) {
  MutexLock lock(mutex_);
  return segment->growing->EncodedBytesLimit();
}

EncodedIndex SegmentTable::Encode(const SegmentPtr& segment) {
  GrowingIndex copy;
  {
    MutexLock lock(mutex_);
    copy = *segment->growing;
  }
  return EncodeIndex(copy, segment->base, segment->capacity, segment->data_end);
}

void SegmentTable::SetIndexed(const SegmentPtr& segment, std::vector<IndexPage> pages) {
  std::unique_ptr<GrowingIndex> old;
  MutexLock lock(mutex_);
  segment->pages = std::move(pages);
  old = std::move(segment->growing);
}

void SegmentTable::Remove(const SegmentPtr& segment) {
  MutexLock lock(mutex_);
  TopicPartition last{};
  bool first = true;
  for (const IndexPage& page : segment->pages) {
    if (!first && page.partition == last) continue;
    first = false;
    last = page.partition;
    auto it = places_.find(page.partition);
    if (it == places_.end()) continue;
    std::erase_if(it->second, [&](const Place& place) { return place.segment == segment; });
    if (it->second.empty()) places_.erase(it);
  }
  segments_.erase(segment->base);
}

// Enough of one segment to fill `max_bytes` if no other segment has any.
void SegmentTable::CollectFrom(const Place& place, TopicPartition partition, uint64_t offset,
                               size_t max_bytes, Candidates& out) {
  uint64_t bytes = 0;
  if (place.segment->growing) {
    const std::vector<IndexEntry>* entries = place.segment->growing->Find(partition);
    if (entries == nullptr) return;
    auto it = std::partition_point(entries->begin(), entries->end(),
                                   [&](const auto& e) { return e.end_offset() <= offset; });
    for (; it != entries->end(); ++it) {
      if (bytes > max_bytes) {
        out.bound = std::min(out.bound, it->first_offset);
        break;
      }
      bytes += it->length + 1;
      out.entries.push_back({place.segment, *it});
    }
    return;
  }
  const std::vector<IndexPage>& pages = place.segment->pages;
  auto it = std::partition_point(pages.begin(), pages.end(), [&](const IndexPage& page) {
    return page.partition < partition || (page.partition == partition && page.end <= offset);
  });
  // The first page may hold little behind the offset, so it does not count.
  for (bool first = true; it != pages.end() && it->partition == partition; ++it, first = false) {
    if (bytes > max_bytes) {
      out.bound = std::min(out.bound, it->first);
      break;
    }
    if (!first) bytes += it->body_bytes + 1;
    out.pages.emplace_back(place.segment, *it);
  }
}

SegmentTable::Candidates SegmentTable::Collect(TopicPartition partition, uint64_t offset,
                                               size_t max_bytes) {
  Candidates out;
  MutexLock lock(mutex_);
  auto found = places_.find(partition);
  if (found == places_.end()) return out;
  std::vector<const Place*> ahead;
  for (const Place& place : found->second) {
    if (place.end > offset) ahead.push_back(&place);
  }
  // All that may hold the offset itself, and a few that begin after it.
  std::sort(ahead.begin(), ahead.end(),
            [](const Place* a, const Place* b) { return a->first < b->first; });
  size_t taken = std::partition_point(ahead.begin(), ahead.end(),
                                      [&](const Place* p) { return p->first <= offset; }) -
                 ahead.begin();
  taken = std::min(ahead.size(), taken + kPlacesAtOnce);
  if (taken < ahead.size()) out.bound = ahead[taken]->first;
  for (size_t i = 0; i < taken; ++i) CollectFrom(*ahead[i], partition, offset, max_bytes, out);
  return out;
}

StatusOr<IndexCache::Page> SegmentTable::LoadPage(const SegmentPtr& segment,
                                                  const IndexPage& page) {
  if (auto cached = index_cache_.Find(segment->base, page.position)) return cached;
  std::string bytes(page.length, '\0');
  MR_ASSIGN_OR_RETURN(size_t got, segment->file->ReadAt(page.position, bytes.data(), bytes.size()));
  bytes.resize(got);
  auto entries = ParseIndexPage(bytes, page, segment->base);
  if (!entries.ok()) {
    return DataLoss(
        fmt::format("{} at {}: {}", segment->path, page.position, MessageOf(entries.status())));
  }
  auto decoded = std::make_shared<const std::vector<IndexEntry>>(*std::move(entries));
  index_cache_.Put(segment->base, page.position, decoded);
  return decoded;
}

// The entries of the pages, as many as are of use.
Status SegmentTable::LoadCandidates(uint64_t offset, size_t max_bytes, Candidates& candidates) {
  uint64_t bytes = 0;
  const Segment* one = nullptr;  // whose pages these are
  for (const auto& [segment, page] : candidates.pages) {
    if (segment.get() != one) bytes = 0;
    one = segment.get();
    if (page.first >= candidates.bound) continue;
    MR_ASSIGN_OR_RETURN(IndexCache::Page decoded, LoadPage(segment, page));
    auto entry = std::partition_point(decoded->begin(), decoded->end(),
                                      [&](const auto& e) { return e.end_offset() <= offset; });
    for (; entry != decoded->end(); ++entry) {
      if (bytes > max_bytes) {
        candidates.bound = std::min(candidates.bound, entry->first_offset);
        break;
      }
      bytes += entry->length + 1;
      candidates.entries.push_back({segment, *entry});
    }
  }
  return OkStatus();
}

StatusOr<std::vector<SegmentTable::FoundEntry>> SegmentTable::Find(TopicPartition partition,
                                                                   uint64_t offset,
                                                                   size_t max_bytes) {
  std::vector<FoundEntry> out;
  size_t bytes = 0;
  while (true) {
    Candidates candidates = Collect(partition, offset, max_bytes);
    std::vector<FoundEntry>& entries = candidates.entries;
    MR_RETURN_IF_ERROR(LoadCandidates(offset, max_bytes, candidates));
    // Of two places of one entry the newer comes first and is taken.
    std::sort(entries.begin(), entries.end(), [](const FoundEntry& a, const FoundEntry& b) {
      if (a.entry.first_offset != b.entry.first_offset) {
        return a.entry.first_offset < b.entry.first_offset;
      }
      return a.segment->base > b.segment->base;
    });
    for (FoundEntry& found : entries) {
      if (found.entry.first_offset >= candidates.bound) break;
      if (found.entry.end_offset() <= offset) continue;  // the older place
      bytes += found.entry.length;
      if (!out.empty() && bytes > max_bytes) return out;
      offset = found.entry.end_offset();
      out.push_back(std::move(found));
    }
    if (candidates.bound == UINT64_MAX) return out;
    offset = std::max(offset, candidates.bound);
  }
}

bool SegmentTable::Holds(TopicPartition partition, uint64_t offset) {
  MutexLock lock(mutex_);
  auto found = places_.find(partition);
  if (found == places_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [&](const Place& place) { return place.end > offset; });
}

StatusOr<std::vector<TopicEntry>> SegmentTable::ReadBodies(TopicPartition partition,
                                                           const std::vector<FoundEntry>& found) {
  std::vector<TopicEntry> out;
  out.reserve(found.size());
  for (size_t from = 0; from < found.size();) {
    const SegmentPtr& segment = found[from].segment;
    uint64_t begin = found[from].entry.position - kBodyPrefixBytes;
    uint64_t end = uint64_t{found[from].entry.position} + found[from].entry.length;
    size_t to = from + 1;
    for (; to < found.size() && found[to].segment == segment; ++to) {
      const IndexEntry& next = found[to].entry;
      uint64_t next_end = uint64_t{next.position} + next.length;
      if (next.position < end || next.position - end > kReadGap || next_end - begin > kReadSpan) {
        break;
      }
      end = next_end;
    }
    auto buffer = std::make_shared_for_overwrite<char[]>(end - begin);
    MR_ASSIGN_OR_RETURN(size_t got, segment->file->ReadAt(begin, buffer.get(), end - begin));
    for (; from < to; ++from) {
      const IndexEntry& entry = found[from].entry;
      const char* body = buffer.get() + (entry.position - begin);
      std::string_view view(body, entry.length);
      if (got < entry.position - begin + entry.length ||
          BodyChecksum(segment->base + entry.position, view) !=
              ReadFixed32(body - kBodyPrefixBytes)) {
        return DataLoss(fmt::format("{} at {}: an entry of topic {} has a wrong checksum",
                                    segment->path, entry.position, partition.topic_uid));
      }
      out.push_back({partition,
                     entry.first_offset,
                     entry.count,
                     {entry.publish_micros},
                     SharedBytes(std::shared_ptr<const void>(buffer), view)});
    }
  }
  return out;
}

Status SegmentTable::VisitEntries(
    const SegmentPtr& segment,
    FunctionRef<bool(TopicPartition, const std::vector<IndexEntry>&)> visit) {
  // Pages do not change once a segment is indexed. They are read past the cache, which is for
  // readers.
  constexpr size_t kChunk = 1 << 20;
  std::string chunk;
  uint64_t chunk_begin = 0;
  for (const IndexPage& page : segment->pages) {
    if (page.position < chunk_begin || page.position + page.length > chunk_begin + chunk.size()) {
      chunk.resize(std::max<size_t>(kChunk, page.length));
      chunk_begin = page.position;
      MR_ASSIGN_OR_RETURN(size_t got,
                          segment->file->ReadAt(chunk_begin, chunk.data(), chunk.size()));
      chunk.resize(got);
      if (got < page.length) return DataLoss(fmt::format("{}: index cut short", segment->path));
    }
    std::string_view bytes(chunk.data() + (page.position - chunk_begin), page.length);
    MR_ASSIGN_OR_RETURN(auto entries, ParseIndexPage(bytes, page, segment->base));
    if (!visit(page.partition, entries)) break;
  }
  return OkStatus();
}

std::vector<SegmentPtr> SegmentTable::All() {
  std::vector<SegmentPtr> out;
  MutexLock lock(mutex_);
  for (const auto& [base, segment] : segments_) out.push_back(segment);
  return out;
}

std::vector<SegmentPtr> SegmentTable::Reclaimable(Lsn lsn) {
  std::vector<SegmentPtr> out;
  MutexLock lock(mutex_);
  for (auto it = segments_.begin(); it != segments_.end(); ++it) {
    // The last one says where the log goes on, whatever is in it.
    if (std::next(it) == segments_.end()) break;
    if (!it->second->growing && it->second->data_end <= lsn) out.push_back(it->second);
  }
  std::stable_sort(out.begin(), out.end(), [](const SegmentPtr& a, const SegmentPtr& b) {
    return a->examined_at < b->examined_at;
  });
  return out;
}

bool SegmentTable::NoteCount(const SegmentPtr& segment, uint64_t live_bytes) {
  MutexLock lock(mutex_);
  bool similar = live_bytes >= segment->live_bytes / 4 * 3;
  segment->examined = similar ? segment->examined + 1 : 0;
  segment->live_bytes = live_bytes;
  segment->examined_at = ++counts_;
  return segment->examined >= 3;
}

SegmentTable::Totals SegmentTable::Sum() {
  Totals totals;
  MutexLock lock(mutex_);
  for (const auto& [base, segment] : segments_) {
    totals.disk_bytes += segment->capacity;
    totals.live_bytes += segment->live_bytes;
  }
  return totals;
}

}  // namespace millrace::storage
