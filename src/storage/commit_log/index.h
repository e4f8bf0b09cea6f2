// Where the entries of a segment are. While a segment grows its index is in memory (GrowingIndex);
// when it is sealed the index goes to the segment's end as pages, delta-coded, with a directory of
// pages that stays in memory.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/status.h"
#include "storage/types.h"

namespace millrace::storage {

// One entry of a partition (known from context) in a segment.
struct IndexEntry {
  uint64_t first_offset = 0;
  int64_t publish_micros = 0;
  uint32_t count = 0;
  uint32_t position = 0;  // of the body, from the segment's first byte
  uint32_t length = 0;    // of the body
  uint64_t end_offset() const { return first_offset + count; }
};

// A run of entries of one partition, on disk.
struct IndexPage {
  TopicPartition partition;
  uint64_t first = 0;  // offset of the first entry
  uint64_t end = 0;    // behind the last one
  uint32_t entries = 0;
  uint32_t position = 0;  // from the segment's first byte
  uint32_t length = 0;
  uint64_t body_bytes = 0;
};

// Entries of one segment by partition, in offset order. Not thread-safe.
class GrowingIndex {
 public:
  void Add(TopicPartition partition, const IndexEntry& entry);
  // Null if the partition has none. The order is restored first if relocated entries disturbed it.
  const std::vector<IndexEntry>* Find(TopicPartition partition);
  // All partitions in order.
  const std::map<TopicPartition, std::vector<IndexEntry>>& Sorted();

  size_t entries() const { return entries_; }
  size_t partitions() const { return by_partition_.size(); }
  uint64_t body_bytes() const { return body_bytes_; }
  // No encoding of this index is longer.
  uint64_t EncodedBytesLimit() const { return entries_ * 24 + by_partition_.size() * 96 + 256; }

 private:
  std::map<TopicPartition, std::vector<IndexEntry>> by_partition_;
  std::vector<TopicPartition> disturbed_;
  size_t entries_ = 0;
  uint64_t body_bytes_ = 0;
};

// Pages, directory and trailer, to be written so that they end where the segment ends.
struct EncodedIndex {
  std::string bytes;
  std::vector<IndexPage> pages;
};
EncodedIndex EncodeIndex(GrowingIndex& index, Lsn base, uint64_t capacity, Lsn data_end);

// What the last bytes of a sealed segment say.
struct IndexTrailer {
  static constexpr size_t kBytes = 40;
  Lsn data_end = 0;
  uint64_t directory_position = 0;
  uint32_t directory_bytes = 0;
  uint32_t pages_bytes = 0;  // all pages lie before the directory
  uint32_t directory_checksum = 0;
};
// Fails (NotFound) if these are not the trailer of the segment with this base.
StatusOr<IndexTrailer> ParseIndexTrailer(std::string_view bytes, Lsn base);
StatusOr<std::vector<IndexPage>> ParseIndexDirectory(std::string_view bytes,
                                                     const IndexTrailer& trailer);
StatusOr<std::vector<IndexEntry>> ParseIndexPage(std::string_view bytes, const IndexPage& page,
                                                 Lsn base);

// Decoded pages, the least recently used dropped. Thread-safe.
class IndexCache {
 public:
  using Page = std::shared_ptr<const std::vector<IndexEntry>>;
  explicit IndexCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  Page Find(Lsn segment_base, uint32_t position);
  void Put(Lsn segment_base, uint32_t position, Page page);

 private:
  using Key = std::pair<Lsn, uint32_t>;
  struct Slot {
    Key key;
    Page page;
  };
  const size_t limit_bytes_;
  Mutex mutex_;
  std::list<Slot> slots_ MR_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Key, std::list<Slot>::iterator> by_key_ MR_GUARDED_BY(mutex_);
  size_t bytes_ MR_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace::storage
