#include "pubsub/subscription/ack_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace millrace::pubsub {
namespace {

constexpr uint64_t kBlock = AckBlocks::kBlock;

uint64_t Ack(AckBlocks& blocks, uint64_t first, uint64_t count) {
  uint64_t fresh = 0;
  blocks.Ack(first, count, [&](uint64_t, uint64_t n) { fresh += n; });
  return fresh;
}

TEST(AckSet, AgreesWithASetOfNumbers) {
  for (int seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    AckSet set;
    std::vector<bool> model(AckSet::kSize);
    int steps = seed % 2 ? 300 : 4000;  // runs only, or runs that become a bitmap
    for (int i = 0; i < steps; ++i) {
      uint32_t first = random() % AckSet::kSize;
      uint32_t end = std::min<uint32_t>(AckSet::kSize, first + 1 + random() % (seed % 2 ? 300 : 4));
      uint32_t fresh = 0;
      for (uint32_t p = first; p < end; ++p) fresh += !model[p], model[p] = true;
      ASSERT_EQ(set.Add(first, end), fresh) << "seed " << seed;
    }
    std::string bytes;
    set.Serialize(&bytes);
    AckSet parsed;
    ASSERT_TRUE(parsed.Parse(bytes));
    for (const AckSet* s : {&set, &parsed}) {
      uint32_t next_in = AckSet::kSize, next_out = AckSet::kSize, members = 0;
      for (uint32_t p = AckSet::kSize; p-- > 0;) {
        (model[p] ? next_in : next_out) = p;
        members += model[p];
        ASSERT_EQ(s->Contains(p), model[p]);
        ASSERT_EQ(s->NextIn(p), next_in);
        ASSERT_EQ(s->NextOut(p), next_out);
        if (p % 97 == 0) ASSERT_EQ(s->Count(p, AckSet::kSize), members);
      }
      ASSERT_EQ(s->size(), members);
    }
  }
}

TEST(AckSet, RefusesMalformedBytes) {
  AckSet set;
  EXPECT_FALSE(set.Parse(""));
  EXPECT_FALSE(set.Parse("\x03"));
  EXPECT_FALSE(set.Parse(std::string("\x01\x02\x05\x01", 4)));
  EXPECT_FALSE(set.Parse(std::string(1, '\x02') + std::string(100, 'x')));
}

TEST(AckBlocks, CursorFollowsTheFirstUnacked) {
  AckBlocks blocks(10);
  EXPECT_EQ(blocks.cursor(), 10u);
  EXPECT_EQ(Ack(blocks, 12, 2), 2u);
  EXPECT_EQ(blocks.cursor(), 10u);
  EXPECT_EQ(blocks.NextUnacked(12), 14u);
  EXPECT_EQ(blocks.CountUnacked(0, 20), 8u);
  EXPECT_EQ(Ack(blocks, 10, 2), 2u);
  EXPECT_EQ(blocks.cursor(), 14u);
  EXPECT_EQ(Ack(blocks, 0, 14), 0u) << "acked already";
  EXPECT_EQ(Ack(blocks, 14, 3 * kBlock), 3 * kBlock);
  EXPECT_EQ(blocks.cursor(), 14 + 3 * kBlock);
  EXPECT_FALSE(blocks.IsAcked(14 + 3 * kBlock));
}

TEST(AckBlocks, ASharedBlockStaysAsItWas) {
  AckBlocks blocks(0);
  Ack(blocks, 5, 1);
  std::shared_ptr<const AckSet> before = blocks.Share(0);
  Ack(blocks, 7, 1);
  EXPECT_FALSE(before->Contains(7));
  EXPECT_TRUE(blocks.IsAcked(7));
  EXPECT_EQ(blocks.Share(1), nullptr);
}

TEST(AckBlocks, AgreesWithASetOfNumbersAndSurvivesItsRows) {
  for (int seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    uint64_t start = random() % (2 * kBlock);
    AckBlocks blocks(start);
    std::set<uint64_t> unacked;
    uint64_t end = start + 4 * kBlock;
    for (uint64_t o = start; o < end; ++o) unacked.insert(unacked.end(), o);
    for (int i = 0; i < 200; ++i) {
      bool front = random() % 3 == 0;
      uint64_t first = front ? blocks.cursor() : start + random() % (end - start);
      uint64_t count = std::min<uint64_t>(end - first, 1 + random() % (i % 10 == 0 ? kBlock : 500));
      uint64_t gone = 0;
      for (auto it = unacked.lower_bound(first); it != unacked.end() && *it < first + count;) {
        it = unacked.erase(it);
        ++gone;
      }
      uint64_t fresh = 0;
      uint64_t last_end = 0;
      blocks.Ack(first, count, [&](uint64_t f, uint64_t n) {
        EXPECT_GE(f, std::max(first, last_end));
        last_end = f + n;
        EXPECT_LE(last_end, first + count);
        fresh += n;
      });
      ASSERT_EQ(fresh, gone) << "seed " << seed << " step " << i;
      ASSERT_EQ(blocks.cursor(), unacked.empty() ? end : *unacked.begin());
      ASSERT_EQ(blocks.CountUnacked(start, end), unacked.size());
    }
    AckBlocks restored(start);
    restored.RestoreCursor(blocks.cursor());
    for (uint64_t block : blocks.TakeDirty()) {
      ASSERT_TRUE(restored.RestoreBlock(block, blocks.SerializeBlock(block)));
    }
    EXPECT_EQ(restored.acked_end(), blocks.acked_end());
    for (AckBlocks* b : {&blocks, &restored}) {
      for (uint64_t o = b->cursor(); o < end; o = b->NextUnacked(o + 1)) {
        ASSERT_TRUE(unacked.contains(o));
        ASSERT_FALSE(b->IsAcked(o));
        auto after = unacked.upper_bound(o);
        ASSERT_EQ(b->NextUnacked(o + 1), after == unacked.end() ? end : *after);
      }
      ASSERT_EQ(b->CountUnacked(0, end), unacked.size());
    }
  }
}

}  // namespace
}  // namespace millrace::pubsub
