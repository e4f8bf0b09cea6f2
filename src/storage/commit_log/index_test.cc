#include "storage/commit_log/index.h"

#include <gtest/gtest.h>

#include <random>

#include "storage/commit_log/entry_cache.h"

namespace millrace::storage {
namespace {

bool Same(const IndexEntry& a, const IndexEntry& b) {
  return a.first_offset == b.first_offset && a.publish_micros == b.publish_micros &&
         a.count == b.count && a.position == b.position && a.length == b.length;
}

// Reads back what EncodeIndex made, as recovery does.
std::map<TopicPartition, std::vector<IndexEntry>> Decode(const EncodedIndex& index, Lsn base,
                                                         uint64_t capacity) {
  std::string file(capacity - index.bytes.size(), '?');
  file += index.bytes;
  std::string_view view(file);
  auto trailer = ParseIndexTrailer(view.substr(capacity - IndexTrailer::kBytes), base);
  EXPECT_TRUE(trailer.ok());
  EXPECT_FALSE(ParseIndexTrailer(view.substr(capacity - IndexTrailer::kBytes), base + 8).ok());
  auto pages = ParseIndexDirectory(
      view.substr(trailer->directory_position, trailer->directory_bytes), *trailer);
  EXPECT_TRUE(pages.ok());
  std::map<TopicPartition, std::vector<IndexEntry>> out;
  for (size_t i = 0; i < pages->size(); ++i) {
    const IndexPage& page = (*pages)[i];
    EXPECT_EQ(page.position, index.pages[i].position);
    auto entries = ParseIndexPage(view.substr(page.position, page.length), page, base);
    EXPECT_TRUE(entries.ok()) << entries.status();
    EXPECT_EQ(page.first, entries->front().first_offset);
    EXPECT_EQ(page.end, entries->back().end_offset());
    auto& all = out[page.partition];
    all.insert(all.end(), entries->begin(), entries->end());
  }
  return out;
}

TEST(Index, ComesBackAsItWas) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  GrowingIndex index;
  std::map<TopicPartition, uint64_t> next;
  uint32_t position = 4096;
  for (int i = 0; i < 5000; ++i) {
    TopicPartition partition{1 + random() % 5 * (random() % 2 ? 1 : 1ull << 60), 0};
    IndexEntry entry;
    entry.first_offset = next[partition] + (random() % 10 == 0 ? random() % 1000 : 0);
    entry.count = 1 + random() % 200;
    entry.publish_micros = static_cast<int64_t>(random() % (1ull << 50)) - (1ll << 49);
    entry.length = random() % 20'000;
    entry.position = position;
    position += entry.length + random() % 100;
    next[partition] = entry.end_offset();
    index.Add(partition, entry);
  }
  uint64_t capacity = 1 << 20;
  EncodedIndex encoded = EncodeIndex(index, 1000, capacity, 2000);
  EXPECT_LE(encoded.bytes.size(), index.EncodedBytesLimit());
  auto decoded = Decode(encoded, 1000, capacity);
  ASSERT_EQ(decoded.size(), index.Sorted().size());
  for (const auto& [partition, entries] : index.Sorted()) {
    ASSERT_EQ(decoded[partition].size(), entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      ASSERT_TRUE(Same(decoded[partition][i], entries[i]));
    }
  }
}

TEST(Index, AnEntryCostsFewBytes) {
  GrowingIndex index;
  std::mt19937_64 random(1);
  uint32_t position = 4096;
  int64_t now = 1'800'000'000'000'000;
  for (int i = 0; i < 100'000; ++i) {
    uint32_t length = 1000 + random() % 100;
    now += 20 + random() % 100;
    index.Add({1, 0}, {static_cast<uint64_t>(i), now, 1, position, length});
    position += length + 60 + random() % 8;
  }
  EncodedIndex encoded = EncodeIndex(index, 0, 256 << 20, 0);
  EXPECT_LE(encoded.bytes.size(), 100'000u * 6);
}

TEST(Index, RelocatedEntriesComeIntoOrderAndTheNewestPlaceWins) {
  GrowingIndex index;
  index.Add({1, 0}, {100, 0, 1, 4096, 10});
  index.Add({1, 0}, {5, 0, 1, 5000, 10});
  index.Add({1, 0}, {101, 0, 1, 6000, 10});
  index.Add({1, 0}, {5, 0, 1, 7000, 10});
  const std::vector<IndexEntry>& entries = *index.Find({1, 0});
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].first_offset, 5u);
  EXPECT_EQ(entries[0].position, 7000u);
  EXPECT_EQ(entries[2].first_offset, 101u);
  EXPECT_EQ(index.Find({2, 0}), nullptr);
}

TEST(EntryCache, KeepsTheTailOfEachPartition) {
  EntryCache cache(10'000);
  auto entry = [](uint64_t topic, uint64_t offset) {
    return TopicEntry{{topic, 0}, offset, 2, {}, SharedBytes(std::string(1000, 'x'))};
  };
  EXPECT_FALSE(cache.Read({1, 0}, 0, 1).has_value());
  for (uint64_t i = 0; i < 3; ++i) cache.Add(entry(1, i * 2));
  EXPECT_EQ(cache.Read({1, 0}, 3, 1)->front().first_offset, 2u);
  EXPECT_EQ(cache.Read({1, 0}, 0, 1 << 20)->size(), 3u);
  EXPECT_TRUE(cache.Read({1, 0}, 6, 1)->empty());
  for (uint64_t i = 0; i < 6; ++i) cache.Add(entry(2, i * 2));
  EXPECT_FALSE(cache.Read({1, 0}, 0, 1).has_value());  // its first one has gone
  EXPECT_EQ(cache.Read({1, 0}, 2, 1 << 20)->size(), 2u);
  for (uint64_t i = 6; i < 20; ++i) cache.Add(entry(2, i * 2));
  EXPECT_FALSE(cache.Read({1, 0}, 4, 1).has_value());
}

}  // namespace
}  // namespace millrace::storage
