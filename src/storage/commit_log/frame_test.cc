#include "storage/commit_log/frame.h"

#include <gtest/gtest.h>

namespace millrace::storage {
namespace {

TopicEntry MakeEntry(uint64_t offset, size_t size) {
  return {{5, 1}, offset, 3, {-17}, SharedBytes(std::string(size, 'b'))};
}

std::string Join(const std::vector<std::string_view>& pieces) {
  std::string out;
  for (std::string_view piece : pieces) out += piece;
  return out;
}

TEST(Frame, HoldsRecordsAndEntries) {
  // Bodies on both sides of what is copied, and none.
  std::vector<Record> records;
  for (size_t size : {0, 1, 4095, 4096, 100'000}) {
    uint64_t seq = records.size() + 1;
    records.push_back({{ShardKind::kTopic, seq * 1000},
                       seq,
                       SharedBytes("p" + std::to_string(seq)),
                       MakeEntry(seq, size)});
  }
  records.push_back({{ShardKind::kRange, 1}, 9, SharedBytes(std::string(5000, 'x')), {}});
  TopicEntry relocated = MakeEntry(77, 10);
  FrameBuilder builder;
  for (int use = 0; use < 2; ++use) {
    builder.Clear();
    EXPECT_TRUE(builder.empty());
    for (const Record& record : records) builder.Add(record);
    builder.AddRelocated(relocated);
    std::string bytes = Join(builder.Finish(4096, 100, 3));
    EXPECT_EQ(bytes.size(), builder.TotalBytes());
    EXPECT_EQ(bytes.size() % 8, 0u);
    auto header = ParseFrameHeader(bytes, 4096);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->TotalBytes(), bytes.size());
    EXPECT_EQ(header->synced_before, 100u);
    EXPECT_EQ(header->boot, 3u);
    std::vector<FrameItem> items;
    ASSERT_TRUE(ParseFrame(bytes, *header, &items));
    ASSERT_EQ(items.size(), records.size() + 1);
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_TRUE(items[i].is_record);
      EXPECT_EQ(items[i].shard, records[i].shard);
      EXPECT_EQ(items[i].seq, records[i].seq);
      EXPECT_EQ(items[i].payload, records[i].payload.view());
      ASSERT_EQ(items[i].entry.has_value(), records[i].entry.has_value());
      if (!records[i].entry) continue;
      EXPECT_EQ(items[i].entry->partition, records[i].entry->partition);
      EXPECT_EQ(items[i].entry->first_offset, records[i].entry->first_offset);
      EXPECT_EQ(items[i].entry->publish_time, records[i].entry->publish_time);
      EXPECT_EQ(items[i].body, records[i].entry->body.view());
      EXPECT_EQ(items[i].body_position, builder.entries()[i].body_position);
    }
    EXPECT_FALSE(items.back().is_record);
    EXPECT_EQ(items.back().entry->first_offset, 77u);
  }
}

TEST(Frame, PassesAtItsPlaceOnly) {
  Record record{{ShardKind::kTopic, 1}, 1, SharedBytes("p"), MakeEntry(0, 20)};
  FrameBuilder builder;
  builder.Clear();
  builder.Add(record);
  std::string bytes = Join(builder.Finish(4096, 0, 1));
  EXPECT_FALSE(ParseFrameHeader(bytes, 4104).has_value());
}

TEST(Frame, EveryFlippedBitIsNoticed) {
  Record record{{ShardKind::kTopic, 1}, 1, SharedBytes("payload"), MakeEntry(0, 30)};
  FrameBuilder builder;
  builder.Clear();
  builder.Add(record);
  uint64_t used = 0;
  std::string bytes = Join(builder.Finish(8, 0, 1));
  used = builder.entries()[0].body_position + 30;  // padding is not covered
  std::vector<FrameItem> items;
  for (size_t bit = 0; bit < used * 8; ++bit) {
    std::string bad = bytes;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    auto header = ParseFrameHeader(bad, 8);
    if (!header || header->TotalBytes() > bad.size()) continue;
    EXPECT_FALSE(ParseFrame(bad, *header, &items)) << "bit " << bit;
  }
}

}  // namespace
}  // namespace millrace::storage
