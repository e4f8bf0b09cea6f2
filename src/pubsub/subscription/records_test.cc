#include "pubsub/subscription/records.h"

#include <gtest/gtest.h>

namespace millrace::pubsub {
namespace {

TEST(AcksRecord, RoundTrip) {
  std::vector<AckedRun> runs = {
      {100, 3, 30}, {103, 1, AckedRun::kUnknownBytes}, {5, 1, 0}, {1ull << 40, 65536, 1}};
  auto back = DecodeAcksRecord(EncodeAcksRecord(runs));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, runs);
  std::string payload = EncodeAcksRecord(runs);
  for (size_t cut = 0; cut < payload.size(); ++cut) {
    EXPECT_FALSE(DecodeAcksRecord(std::string_view(payload).substr(0, cut)).ok()) << cut;
  }
  EXPECT_FALSE(DecodeAcksRecord(payload + "x").ok());
  EXPECT_FALSE(DecodeAcksRecord("\x7f").ok());
}

TEST(Rows, KeysSortByBlockAfterTheState) {
  SubscriptionUid uid{0x0102030405060708};
  EXPECT_LT(StateRowKey(uid), BlockRowKey(uid, 0));
  EXPECT_LT(BlockRowKey(uid, 255), BlockRowKey(uid, 256));
  uint64_t block = 0;
  EXPECT_TRUE(ParseBlockRowKey(uid, BlockRowKey(uid, 77), &block));
  EXPECT_EQ(block, 77u);
  EXPECT_FALSE(ParseBlockRowKey(uid, StateRowKey(uid), &block));
  EXPECT_FALSE(ParseBlockRowKey({1}, BlockRowKey(uid, 77), &block));
  auto row = DecodeStateRow(EncodeStateRow({5, 1000, 2000}));
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->seq, 5u);
  EXPECT_EQ(row->cursor, 1000u);
  EXPECT_EQ(row->counted_end, 2000u);
  EXPECT_FALSE(DecodeStateRow("").ok());
}

}  // namespace
}  // namespace millrace::pubsub
