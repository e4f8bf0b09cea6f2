#include "pubsub/subscription/lease_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace millrace::pubsub {
namespace {

SteadyTime At(int64_t ms) { return {ms * 1000}; }

struct Collected {
  std::map<uint64_t, uint32_t> sizes;  // offset → size
  uint64_t bytes = 0;
  void operator()(const ReleasedLeases& released) {
    for (uint32_t i = 0; i < released.count; ++i) {
      EXPECT_TRUE(sizes.emplace(released.first + i, released.sizes[i]).second);
    }
    bytes += released.bytes;
  }
};

TEST(LeaseTable, EpochsGrowAndNeverComeBackAfterARestart) {
  LeaseTable first(1), second(2);
  uint64_t a = first.Open(0, 1, At(1000), false);
  uint64_t b = first.Open(1, 1, At(1000), false);
  EXPECT_LT(a, b);
  EXPECT_LT(b, second.Open(0, 1, At(1000), false));
}

TEST(LeaseTable, ARunEndsPieceByPiece) {
  LeaseTable table(1);
  uint64_t epoch = table.Open(10, 3, At(1000), false);
  for (uint64_t o : {10, 11, 12, 15, 16}) ASSERT_TRUE(table.Add(o, static_cast<uint32_t>(o)));
  EXPECT_EQ(table.outstanding(), 5u);
  Collected middle;
  table.Release(epoch, 12, 4, [&](const ReleasedLeases& r) {
    EXPECT_EQ(r.session, 3u);
    middle(r);
  });
  EXPECT_EQ(middle.sizes, (std::map<uint64_t, uint32_t>{{12, 12}, {15, 15}}));
  Collected none;
  table.Release(epoch, 12, 4, std::ref(none));
  table.Release(epoch + 1, 10, 1, std::ref(none));
  EXPECT_TRUE(none.sizes.empty()) << "ended already, or of another epoch";
  Collected rest;
  table.Release(epoch, 0, 100, std::ref(rest));
  EXPECT_EQ(rest.bytes, 10u + 11 + 16);
  EXPECT_EQ(table.outstanding(), 0u);
  EXPECT_EQ(table.runs(), 0u);
  EXPECT_EQ(table.NextDeadline(), SteadyTime::Max());
}

TEST(LeaseTable, DeadlinesOfPartsOfARun) {
  LeaseTable table(1);
  uint64_t epoch = table.Open(0, 1, At(1000), false);
  for (uint64_t o = 0; o < 10; ++o) table.Add(o, 1);
  table.Extend(epoch, 2, 3, At(5000));
  table.Extend(epoch, 8, 1, At(500));
  EXPECT_EQ(table.NextDeadline(), At(500));
  Collected early;
  table.ReleaseDue(At(499), std::ref(early));
  EXPECT_TRUE(early.sizes.empty());
  Collected first;
  table.ReleaseDue(At(500), std::ref(first));
  EXPECT_EQ(first.sizes, (std::map<uint64_t, uint32_t>{{8, 1}}));
  EXPECT_EQ(table.NextDeadline(), At(1000));
  Collected second;
  table.ReleaseDue(At(1000), std::ref(second));
  EXPECT_EQ(second.sizes.size(), 6u);
  EXPECT_EQ(table.outstanding(), 3u);
  table.Extend(epoch, 0, 10, At(2000));  // all that is left
  EXPECT_EQ(table.NextDeadline(), At(2000));
}

TEST(LeaseTable, AgreesWithOneLeaseAMessage) {
  struct Lease {
    uint64_t epoch;
    SessionId session;
    int64_t deadline;
    uint32_t size;
  };
  for (int seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    LeaseTable table(seed);
    std::map<uint64_t, Lease> model;
    std::vector<uint64_t> epochs, back;  // back: were delivered, wait for another delivery
    uint64_t next = 0;
    int64_t now = 0;
    auto take = [&](const ReleasedLeases& r) {
      uint64_t bytes = 0;
      for (uint32_t i = 0; i < r.count; ++i) {
        auto it = model.find(r.first + i);
        ASSERT_NE(it, model.end());
        ASSERT_EQ(it->second.session, r.session);
        ASSERT_EQ(it->second.size, r.sizes[i]);
        bytes += r.sizes[i];
        back.push_back(it->first);
        model.erase(it);
      }
      ASSERT_EQ(bytes, r.bytes);
    };
    for (int step = 0; step < 400; ++step) {
      int what = random() % 10;
      if (what < 3) {
        bool again = random() % 2 == 0 && !back.empty();
        int64_t deadline = now + 10 * (1 + random() % 300);
        SessionId session = random() % 4;
        std::sort(back.begin(), back.end());
        uint64_t epoch = 0;
        for (int n = 1 + random() % 200; n > 0 && (!again || !back.empty()); --n) {
          uint64_t offset = again ? back.front() : next;
          if (again) back.erase(back.begin());
          if (!again) next += 1 + (random() % 20 == 0) * (random() % 100);
          uint32_t size = random() % 1000;
          if (epoch == 0 || !table.Add(offset, size)) {
            epoch = table.Open(offset, session, At(deadline), again);
            epochs.push_back(epoch);
            ASSERT_TRUE(table.Add(offset, size));
          }
          model[offset] = {epoch, session, deadline, size};
        }
      } else if (what < 7 && !epochs.empty()) {
        uint64_t epoch = epochs[epochs.size() - 1 - random() % std::min<size_t>(epochs.size(), 20)];
        uint64_t first = next > 300 ? next - 1 - random() % 300 : 0;
        uint32_t count = 1 + random() % 300;
        if (what == 3) {
          int64_t deadline = now + 10 * (random() % 300);
          table.Extend(epoch, first, count, At(deadline));
          for (auto& [o, lease] : model) {
            if (o >= first && o < first + count && lease.epoch == epoch) lease.deadline = deadline;
          }
        } else {
          size_t want = std::count_if(model.begin(), model.end(), [&](auto& e) {
            return e.first >= first && e.first < first + count && e.second.epoch == epoch;
          });
          size_t before = model.size();
          table.Release(epoch, first, count, take);
          ASSERT_EQ(before - model.size(), want);
        }
      } else if (what == 7) {
        now += 10 * (random() % 50);
        size_t want = std::count_if(model.begin(), model.end(),
                                    [&](auto& e) { return e.second.deadline <= now; });
        size_t before = model.size();
        table.ReleaseDue(At(now), take);
        ASSERT_EQ(before - model.size(), want) << "seed " << seed << " step " << step;
      } else if (what == 8) {
        SessionId session = random() % 4;
        table.ReleaseSession(session, take);
        size_t left = 0;
        for (auto& [o, lease] : model) left += lease.session == session;
        ASSERT_EQ(left, 0u);
      } else if (next > 0) {
        uint64_t offset = random() % next;
        bool leased = model.contains(offset);
        ASSERT_EQ(leased, table.ReleaseOffset(offset, take));
      }
      ASSERT_EQ(table.outstanding(), model.size());
      if (step % 20 == 0) {
        for (auto& [o, lease] : model) ASSERT_LE(table.NextDeadline(), At(lease.deadline));
      }
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace millrace::pubsub
