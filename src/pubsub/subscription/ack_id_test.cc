#include "pubsub/subscription/ack_id.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::pubsub {
namespace {

constexpr char kKey[] = "0123456789abcdef";

TEST(AckId, RoundTrip) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    AckId id{{random()}, static_cast<uint32_t>(random()), random(), random()};
    std::string text = FormatAckId(id, kKey);
    EXPECT_LE(text.size(), 100u);
    AckId back;
    ASSERT_TRUE(ParseAckId(text, kKey, &back));
    EXPECT_EQ(back.subscription, id.subscription);
    EXPECT_EQ(back.partition, id.partition);
    EXPECT_EQ(back.offset, id.offset);
    EXPECT_EQ(back.epoch, id.epoch);
  }
}

TEST(AckId, RefusesWhatItDidNotMake) {
  std::string text = FormatAckId({{1}, 0, 5, 9}, kKey);
  AckId id;
  EXPECT_FALSE(ParseAckId(text, "fedcba9876543210", &id)) << "another key";
  EXPECT_FALSE(ParseAckId("", kKey, &id));
  EXPECT_FALSE(ParseAckId("garbage", kKey, &id));
  EXPECT_FALSE(ParseAckId(text + "A", kKey, &id));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(ParseAckId(changed, kKey, &id)) << i;
    changed[i] = '+';
    EXPECT_FALSE(ParseAckId(changed, kKey, &id)) << i;
  }
}

TEST(AckId, ListsBecomeRanges) {
  std::vector<std::string> ids;
  auto add = [&](uint64_t uid, uint64_t offset, uint64_t epoch) {
    ids.push_back(FormatAckId({{uid}, 0, offset, epoch}, kKey));
  };
  add(1, 10, 7), add(1, 11, 7), add(1, 12, 7), add(1, 13, 8), add(2, 14, 8), add(1, 14, 8),
      add(1, 3, 8);
  ids.push_back("garbage");
  std::vector<AckRange> want = {{10, 3, 7}, {13, 2, 8}, {3, 1, 8}};
  EXPECT_EQ(ParseAckIds(ids, SipKey::From(kKey), {1}, 0), want);
}

}  // namespace
}  // namespace millrace::pubsub
