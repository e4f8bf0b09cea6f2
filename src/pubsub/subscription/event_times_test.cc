#include "pubsub/subscription/event_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "pubsub/subscription/timestamp_attribute.h"
#include "testing/subscription_harness.h"

namespace millrace::pubsub {
namespace {

using Harness = ::millrace::testing::SubscriptionHarness;
using std::chrono::seconds;

TEST(TimestampAttribute, IsFoundInTheWireBytes) {
  EXPECT_EQ(FindAttribute(Harness::Wire("123"), "ts"), "123");
  EXPECT_EQ(FindAttribute(Harness::Wire("123"), "t"), std::nullopt);
  EXPECT_EQ(FindAttribute("", "ts"), std::nullopt);
  std::string two = Harness::Wire("1") + Harness::Wire("2");
  EXPECT_EQ(FindAttribute(two, "ts"), "2") << "the last one wins";
  std::string reversed(
      "\x12\x07\x12\x01"
      "9"
      "\x0a\x02ts",
      9);
  EXPECT_EQ(FindAttribute(reversed, "ts"), "9");
  std::string wire = Harness::Wire("1234567");
  for (size_t cut = 0; cut < wire.size(); ++cut) FindAttribute(wire.substr(0, cut), "ts");
}

TEST(TimestampAttribute, MillisecondsAndRfc3339) {
  EXPECT_EQ(ParseEventTimeMs("1357034400000"), 1357034400000);
  EXPECT_EQ(ParseEventTimeMs("0"), 0);
  EXPECT_EQ(ParseEventTimeMs("-5"), -5);
  EXPECT_EQ(ParseEventTimeMs("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(ParseEventTimeMs("2013-01-01T10:00:00Z"), 1357034400000);
  EXPECT_EQ(ParseEventTimeMs("2013-01-01T10:00:00.5Z"), 1357034400500);
  EXPECT_EQ(ParseEventTimeMs("2013-01-01T10:00:00.123999Z"), 1357034400123);
  EXPECT_EQ(ParseEventTimeMs("2024-02-29T23:59:59.999Z"), 1709251199999);
  EXPECT_EQ(ParseEventTimeMs("1969-12-31T23:59:59.999Z"), -1);
  for (const char* bad :
       {"", "-", "abc", "12a", "2013-01-01", "2013-13-01T10:00:00Z", "2013-02-29T10:00:00Z",
        "2013-01-01T10:00:00", "2013-01-01T10:00:00+01:00", "2013-01-01T24:00:00Z",
        "2013-01-01T10:00:00.Z", "99999999999999999999", "-2013-01-01T10:00:00Z"}) {
    EXPECT_EQ(ParseEventTimeMs(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(EventTimeMs(Harness::Wire("nonsense"), "ts", {1'234'567}), 1234)
      << "publish time instead";
}

TEST(EventTimes, TheMinimumIsAlwaysExactAfterRefining) {
  for (int seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    uint64_t start = random() % 5000;
    EventTimes times("ts", seconds(10), start);
    AckBlocks acks(start);
    std::map<uint64_t, int64_t> unacked;
    std::vector<StoredMessage> all(start);
    uint64_t read = 0;
    for (int step = 0; step < 300; ++step) {
      if (random() % 3 == 0) {
        for (uint64_t n = random() % 600; n > 0; --n) {
          int64_t ms =
              static_cast<int64_t>(all.size()) * 10 + static_cast<int64_t>(random() % 20'000);
          StoredMessage m{all.size(),
                          {static_cast<int64_t>(all.size()) * 1000},
                          SharedBytes(Harness::Wire(std::to_string(ms)))};
          all.push_back(m);
          times.Add(m, false);
          unacked[m.offset] = ms;
        }
      } else if (!unacked.empty()) {
        uint64_t first = unacked.begin()->first + (random() % 2) * (random() % 3000);
        acks.Ack(first, 1 + random() % 400, [&](uint64_t f, uint64_t n) {
          times.OnAcked(f, n);
          for (uint64_t o = f; o < f + n; ++o) unacked.erase(o);
        });
      }
      // Acks past what was published do not happen; forget them here.
      while (all.size() < acks.acked_end()) {
        StoredMessage m{
            all.size(), {static_cast<int64_t>(all.size()) * 1000}, SharedBytes(std::string())};
        all.push_back(m);
        times.Add(m, acks.IsAcked(m.offset));
        if (!acks.IsAcked(m.offset)) unacked[m.offset] = static_cast<int64_t>(m.offset);
      }
      if (random() % 4) continue;
      while (auto part = times.NeedsReading()) {
        uint64_t to = std::min(part->end, part->first + 1 + random() % 1024);
        std::vector<StoredMessage> messages(all.begin() + part->first, all.begin() + to);
        times.Refine(*part, to, messages, acks);
        read += messages.size();
      }
      std::optional<int64_t> want;
      for (auto& [o, ms] : unacked) want = want ? std::min(*want, ms) : ms;
      ASSERT_EQ(times.MinimumUnacked(), want) << "seed " << seed << " step " << step;
    }
    EXPECT_GT(read, 0u);
  }
}

TEST(EventTimes, ABandHoldsWhatWasPublishedWithinIt) {
  EventTimes times("ts", seconds(10), 0);
  auto add = [&](uint64_t offset, int64_t publish_seconds, int64_t ms) {
    times.Add(
        {offset, {publish_seconds * 1'000'000}, SharedBytes(Harness::Wire(std::to_string(ms)))},
        true);
  };
  add(0, 100, 7), add(1, 105, 3), add(2, 109, 9);
  EXPECT_EQ(times.MinimumPublishedSince({100'000'000}), 3);
  EXPECT_EQ(times.MinimumPublishedSince({105'100'000}), 9);
  EXPECT_EQ(times.MinimumPublishedSince({110'000'000}), std::nullopt);
  EXPECT_EQ(times.MinimumUnacked(), std::nullopt);
  times.WidenBand(seconds(1000));
  EXPECT_EQ(times.MinimumPublishedSince({100'000'000}), 3);
}

TEST(Backlog, AnAttributeRegisteredLateIsScannedInTheBackground) {
  Harness h;
  for (int i = 0; i < 100'000; ++i) h.topic->Publish(Harness::Wire(std::to_string(1'000'000 - i)));
  auto got = **h.StartPull(1000)->answer;
  h.topic->EvictBelow(100'000);
  h.Query();
  h.shard->RegisterTimestampAttribute("ts", seconds(10));
  std::optional<BacklogInfo> first;
  h.shard->QueryBacklog("ts", seconds(10), [&](auto info) { first = *info; });
  while (!first) ASSERT_TRUE(h.pool().RunOne());
  EXPECT_FALSE(first->event_times_known);
  h.Run();
  BacklogInfo info = h.Query("ts");
  EXPECT_TRUE(info.event_times_known);
  EXPECT_EQ(info.min_event_ms_unacked, 1'000'000 - 99'999);
  EXPECT_EQ(info.messages, 100'000u);
  h.Ack(Harness::Ids(got));
  h.Run();
  EXPECT_EQ(h.Query("ts").min_event_ms_unacked, 1'000'000 - 99'999);
  EXPECT_EQ(h.Query("ts").min_event_ms_in_band, 1'000'000 - 99'999);
}

TEST(Backlog, AQueryCoversWhatWasPublishedBeforeIt) {
  Harness h;
  h.Query("ts");
  h.PublishAt(5'000);
  h.PublishAt(4'000);
  EXPECT_EQ(h.Query("ts").min_event_ms_unacked, 4'000);
  auto got = **h.StartPull(10)->answer;
  h.PublishAt(4'500);
  h.Ack({got[1].ack_id});
  h.Run();
  EXPECT_EQ(h.Query("ts").min_event_ms_unacked, 4'500);
  h.Ack({got[0].ack_id});
  BacklogInfo info = h.Query("ts");
  EXPECT_EQ(info.messages, 1u);
  EXPECT_EQ(info.min_event_ms_in_band, 4'000) << "acked, but published within the band";
  h.Advance(seconds(11));
  EXPECT_EQ(h.Query("ts").min_event_ms_in_band, std::nullopt);
  EXPECT_EQ(h.Query("ts").min_event_ms_unacked, 4'500);
}

TEST(Backlog, AnAttributeRegisteredLateStillKnowsTheBandOfWhatIsAcked) {
  Harness h;
  for (int i = 0; i < 5000; ++i) h.PublishAt(1'000 + i);
  h.Advance(seconds(11));
  for (int i = 0; i < 5000; ++i) h.PublishAt(9'000 - i);
  h.Run();
  while (true) {
    auto got = **h.StartPull(1000, true)->answer;
    if (got.empty()) break;
    h.Ack(Harness::Ids(got));
    h.Run();
  }
  h.Query("ts");
  BacklogInfo info = h.Query("ts");
  EXPECT_TRUE(info.event_times_known);
  EXPECT_EQ(info.messages, 0u);
  EXPECT_EQ(info.min_event_ms_unacked, std::nullopt);
  EXPECT_EQ(info.min_event_ms_in_band, 4'001);
}

}  // namespace
}  // namespace millrace::pubsub
