#include "storage/commit_log/index.h"

#include <algorithm>
#include <cstring>

#include "storage/commit_log/crc32c.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

constexpr uint32_t kTrailerMagic = 0x3158494d;  // "MIX1"
constexpr size_t kPageEntries = 512;
// Bytes between the end of one body and the start of the next when both are alone in a frame; a
// guess that keeps deltas short.
constexpr int64_t kUsualGap = 88;

uint32_t PageChecksum(Lsn base, std::string_view bytes) {
  std::string seed;
  PutFixed64(seed, base);
  return ExtendCrc32c(ExtendCrc32c(0, seed), bytes);
}

// The same sequence of expectations on both sides makes the deltas.
struct Expectation {
  uint64_t offset = 0;
  int64_t publish = 0;
  int64_t position = 0;
  int64_t length = 0;
  void Advance(const IndexEntry& entry) {
    offset = entry.end_offset();
    publish = entry.publish_micros;
    position = static_cast<int64_t>(entry.position) + entry.length + kUsualGap;
    length = entry.length;
  }
};

void EncodePage(const IndexEntry* begin, const IndexEntry* end, Lsn base, std::string& out) {
  size_t start = out.size();
  Expectation expected;
  for (const IndexEntry* entry = begin; entry != end; ++entry) {
    uint64_t gap = entry->first_offset - expected.offset;
    PutVarint(out, static_cast<uint64_t>(entry->count) << 1 | (gap != 0));
    if (gap != 0) PutVarint(out, gap);
    PutVarint(out, ZigZag(entry->publish_micros - expected.publish));
    PutVarint(out, ZigZag(entry->position - expected.position));
    PutVarint(out, ZigZag(entry->length - expected.length));
    expected.Advance(*entry);
  }
  PutFixed32(out, PageChecksum(base, std::string_view(out).substr(start)));
}

void EncodePartition(TopicPartition partition, const std::vector<IndexEntry>& entries, Lsn base,
                     EncodedIndex& out) {
  for (size_t from = 0; from < entries.size(); from += kPageEntries) {
    size_t to = std::min(entries.size(), from + kPageEntries);
    IndexPage page;
    page.partition = partition;
    page.first = entries[from].first_offset;
    page.entries = static_cast<uint32_t>(to - from);
    page.position = static_cast<uint32_t>(out.bytes.size());  // relative for now
    for (size_t i = from; i < to; ++i) {
      page.end = std::max(page.end, entries[i].end_offset());
      page.body_bytes += entries[i].length;
    }
    EncodePage(&entries[from], entries.data() + to, base, out.bytes);
    page.length = static_cast<uint32_t>(out.bytes.size()) - page.position;
    out.pages.push_back(page);
  }
}

void EncodeDirectory(const std::vector<IndexPage>& pages, std::string& out) {
  TopicPartition last{};
  for (const IndexPage& page : pages) {
    PutVarint(out, ZigZag(static_cast<int64_t>(page.partition.topic_uid - last.topic_uid)));
    PutVarint(out, page.partition.partition);
    PutVarint(out, page.first);
    PutVarint(out, page.end - page.first);
    PutVarint(out, page.entries);
    PutVarint(out, page.position);
    PutVarint(out, page.length);
    PutVarint(out, page.body_bytes);
    last = page.partition;
  }
}

}  // namespace

void GrowingIndex::Add(TopicPartition partition, const IndexEntry& entry) {
  std::vector<IndexEntry>& entries = by_partition_[partition];
  if (!entries.empty() && entries.back().end_offset() > entry.first_offset &&
      (disturbed_.empty() || disturbed_.back() != partition)) {
    disturbed_.push_back(partition);
  }
  entries.push_back(entry);
  ++entries_;
  body_bytes_ += entry.length;
}

const std::map<TopicPartition, std::vector<IndexEntry>>& GrowingIndex::Sorted() {
  for (TopicPartition partition : disturbed_) {
    std::vector<IndexEntry>& entries = by_partition_[partition];
    // A copy made twice (relocation, crash, relocation) keeps its newest place, which is the later
    // one here.
    std::reverse(entries.begin(), entries.end());
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.first_offset < b.first_offset; });
    auto end = std::unique(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.first_offset == b.first_offset;
    });
    entries.erase(end, entries.end());
  }
  disturbed_.clear();
  return by_partition_;
}

const std::vector<IndexEntry>* GrowingIndex::Find(TopicPartition partition) {
  const auto& sorted = Sorted();
  auto it = sorted.find(partition);
  return it == sorted.end() ? nullptr : &it->second;
}

EncodedIndex EncodeIndex(GrowingIndex& index, Lsn base, uint64_t capacity, Lsn data_end) {
  EncodedIndex out;
  for (const auto& [partition, entries] : index.Sorted()) {
    EncodePartition(partition, entries, base, out);
  }
  std::string directory;
  // Positions are relative to the index's own start until its length is known; the directory is
  // coded with those.
  EncodeDirectory(out.pages, directory);
  uint64_t total = out.bytes.size() + directory.size() + IndexTrailer::kBytes;
  uint64_t start = capacity - total;
  for (IndexPage& page : out.pages) page.position += static_cast<uint32_t>(start);
  uint64_t directory_position = start + out.bytes.size();
  std::string trailer;
  PutFixed64(trailer, base);
  PutFixed64(trailer, data_end);
  PutFixed32(trailer, static_cast<uint32_t>(directory_position));
  PutFixed32(trailer, static_cast<uint32_t>(directory.size()));
  PutFixed32(trailer, static_cast<uint32_t>(out.bytes.size()));
  PutFixed32(trailer, ExtendCrc32c(0, directory));
  PutFixed32(trailer, ExtendCrc32c(0, trailer));
  PutFixed32(trailer, kTrailerMagic);
  out.bytes += directory;
  out.bytes += trailer;
  return out;
}

StatusOr<IndexTrailer> ParseIndexTrailer(std::string_view bytes, Lsn base) {
  if (bytes.size() != IndexTrailer::kBytes || ReadFixed32(&bytes[36]) != kTrailerMagic ||
      ReadFixed64(&bytes[0]) != base ||
      ReadFixed32(&bytes[32]) != ExtendCrc32c(0, bytes.substr(0, 32))) {
    return NotFound("no index");
  }
  IndexTrailer trailer;
  trailer.data_end = ReadFixed64(&bytes[8]);
  trailer.directory_position = ReadFixed32(&bytes[16]);
  trailer.directory_bytes = ReadFixed32(&bytes[20]);
  trailer.pages_bytes = ReadFixed32(&bytes[24]);
  trailer.directory_checksum = ReadFixed32(&bytes[28]);
  return trailer;
}

StatusOr<std::vector<IndexPage>> ParseIndexDirectory(std::string_view bytes,
                                                     const IndexTrailer& trailer) {
  if (bytes.size() != trailer.directory_bytes ||
      ExtendCrc32c(0, bytes) != trailer.directory_checksum) {
    return DataLoss("index directory: wrong checksum");
  }
  uint64_t start = trailer.directory_position - trailer.pages_bytes;
  std::vector<IndexPage> pages;
  ByteReader reader(bytes);
  TopicPartition last{};
  while (!reader.empty()) {
    IndexPage page;
    page.partition.topic_uid = last.topic_uid + static_cast<uint64_t>(UnZigZag(reader.Varint()));
    page.partition.partition = static_cast<uint32_t>(reader.Varint());
    page.first = reader.Varint();
    page.end = page.first + reader.Varint();
    page.entries = static_cast<uint32_t>(reader.Varint());
    page.position = static_cast<uint32_t>(start + reader.Varint());
    page.length = static_cast<uint32_t>(reader.Varint());
    page.body_bytes = reader.Varint();
    last = page.partition;
    pages.push_back(page);
  }
  if (!reader.ok()) return DataLoss("index directory: malformed");
  return pages;
}

StatusOr<std::vector<IndexEntry>> ParseIndexPage(std::string_view bytes, const IndexPage& page,
                                                 Lsn base) {
  if (bytes.size() != page.length || bytes.size() < 4 ||
      PageChecksum(base, bytes.substr(0, bytes.size() - 4)) !=
          ReadFixed32(bytes.data() + bytes.size() - 4)) {
    return DataLoss("index page: wrong checksum");
  }
  ByteReader reader(bytes.substr(0, bytes.size() - 4));
  std::vector<IndexEntry> entries;
  entries.reserve(page.entries);
  Expectation expected;
  while (!reader.empty()) {
    IndexEntry entry;
    uint64_t count = reader.Varint();
    entry.count = static_cast<uint32_t>(count >> 1);
    entry.first_offset = expected.offset + ((count & 1) ? reader.Varint() : 0);
    entry.publish_micros = expected.publish + UnZigZag(reader.Varint());
    entry.position = static_cast<uint32_t>(expected.position + UnZigZag(reader.Varint()));
    entry.length = static_cast<uint32_t>(expected.length + UnZigZag(reader.Varint()));
    expected.Advance(entry);
    entries.push_back(entry);
  }
  if (!reader.ok() || entries.size() != page.entries) return DataLoss("index page: malformed");
  return entries;
}

IndexCache::Page IndexCache::Find(Lsn segment_base, uint32_t position) {
  MutexLock lock(mutex_);
  auto it = by_key_.find(Key(segment_base, position));
  if (it == by_key_.end()) return nullptr;
  slots_.splice(slots_.begin(), slots_, it->second);
  return it->second->page;
}

void IndexCache::Put(Lsn segment_base, uint32_t position, Page page) {
  MutexLock lock(mutex_);
  Key key(segment_base, position);
  if (by_key_.contains(key)) return;
  bytes_ += page->size() * sizeof(IndexEntry);
  slots_.push_front({key, std::move(page)});
  by_key_[key] = slots_.begin();
  while (bytes_ > limit_bytes_ && slots_.size() > 1) {
    bytes_ -= slots_.back().page->size() * sizeof(IndexEntry);
    by_key_.erase(slots_.back().key);
    slots_.pop_back();
  }
}

}  // namespace millrace::storage
