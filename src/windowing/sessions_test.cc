#include "windowing/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace millrace::windowing {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Window W(Millis start, Millis end) { return Window::Interval(start, end); }

std::vector<Window> AddressesOf(const ActiveWindows& active, const Window& window) {
  const auto span = active.Addresses(window);
  return {span.begin(), span.end()};
}

TEST(SessionsTest, OverlapJoinsAndTouchDoesNot) {
  const std::vector<WindowGroup> groups =
      GroupSessions({W(25, 30), W(0, 10), W(10, 20), W(5, 8), W(19, 26)});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].result, W(0, 10));
  EXPECT_EQ(groups[1].result, W(10, 30));
  EXPECT_THAT(groups[1].members, ElementsAre(W(10, 20), W(19, 26), W(25, 30)));
}

TEST(SessionsTest, NewWindowsOfOneRoundNeedNoMerge) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Add(W(5, 15));
  EXPECT_THAT(active.Merge(), IsEmpty());
  EXPECT_THAT(active.windows(), ElementsAre(W(0, 15)));
  EXPECT_EQ(active.WriteAddress(W(0, 15)), W(0, 15));
  EXPECT_EQ(active.Current(W(5, 15)), W(0, 15));
}

TEST(SessionsTest, ElementInsideASessionChangesNothing) {
  ActiveWindows active;
  active.Add(W(0, 30));
  active.Merge();
  const ActiveWindows before = active;
  active.Add(W(5, 15));
  EXPECT_THAT(active.Merge(), IsEmpty());
  EXPECT_EQ(active, before);
}

TEST(SessionsTest, GrowingKeepsTheAddress) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Merge();
  for (Millis t = 5; t < 500; t += 5) {
    active.Add(W(t, t + 10));
    const std::vector<WindowMerge> merges = active.Merge();
    ASSERT_EQ(merges.size(), 1u);
    EXPECT_EQ(merges[0].result, W(0, t + 10));
    EXPECT_THAT(merges[0].merged, ElementsAre(W(0, t + 5)));
    EXPECT_FALSE(merges[0].result_is_merged);
    EXPECT_THAT(AddressesOf(active, W(0, t + 10)), ElementsAre(W(0, 10)));
  }
}

TEST(SessionsTest, BridgeJoinsTwoSessionsAndTheirAddresses) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Add(W(20, 30));
  active.Merge();
  active.Add(W(8, 22));
  EXPECT_THAT(active.Merge(), ElementsAre(WindowMerge{W(0, 30), {W(0, 10), W(20, 30)}, false}));
  EXPECT_THAT(AddressesOf(active, W(0, 30)), ElementsAre(W(0, 10), W(20, 30)));
  EXPECT_EQ(active.WriteAddress(W(0, 30)), W(0, 10));
}

TEST(SessionsTest, ResultAmongTheMergedComesFirst) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Add(W(20, 30));
  active.Merge();
  const std::optional<std::vector<WindowMerge>> merges =
      active.Apply({{W(20, 30), {W(0, 10), W(20, 30)}}});
  ASSERT_TRUE(merges);
  EXPECT_THAT(*merges, ElementsAre(WindowMerge{W(20, 30), {W(20, 30), W(0, 10)}, true}));
}

TEST(SessionsTest, WrongAnswersOfAHarnessChangeNothing) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Add(W(20, 30));
  active.Merge();
  const ActiveWindows before = active;
  EXPECT_FALSE(active.Apply({{W(0, 30), {}}}));
  EXPECT_FALSE(active.Apply({{W(0, 30), {W(1, 2)}}}));
  EXPECT_FALSE(active.Apply({{W(0, 30), {W(0, 10), W(0, 10)}}}));
  EXPECT_FALSE(active.Apply({{W(20, 30), {W(0, 10)}}}));
  EXPECT_FALSE(active.Apply({{W(0, 30), {W(0, 10)}}, {W(0, 30), {W(20, 30)}}}));
  EXPECT_FALSE(active.Apply({{W(0, 30), {W(0, 10)}}, {W(0, 31), {W(0, 10)}}}));
  EXPECT_EQ(active, before);
}

TEST(SessionsTest, RemovedWindowIsGone) {
  ActiveWindows active;
  active.Add(W(0, 10));
  active.Merge();
  active.Remove(W(0, 10));
  EXPECT_TRUE(active.empty());
  EXPECT_EQ(active.Current(W(0, 10)), std::nullopt);
  std::string bytes;
  active.AppendTo(bytes);
  EXPECT_EQ(bytes, "");
}

// Any order and batching of elements ends in the same sessions, each address is in one session, and
// the codec keeps all of it.
TEST(SessionsTest, OrderDoesNotMatter) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<Window> elements;
    for (int i = 0; i < 40; ++i) {
      const Millis start = std::uniform_int_distribution<Millis>(0, 1500)(random);
      elements.push_back(W(start, start + 20));
    }
    std::vector<Window> expected;
    for (const WindowGroup& group : GroupSessions(elements)) expected.push_back(group.result);
    std::shuffle(elements.begin(), elements.end(), random);
    ActiveWindows active;
    for (size_t i = 0; i < elements.size();) {
      for (size_t n = 1 + random() % 3; n > 0 && i < elements.size(); --n) {
        active.Add(elements[i++]);
      }
      active.Merge();
      std::string bytes;
      active.AppendTo(bytes);
      const std::optional<ActiveWindows> back = ActiveWindows::Parse(bytes);
      ASSERT_TRUE(back);
      ASSERT_EQ(*back, active);
      EXPECT_FALSE(ActiveWindows::Parse(std::string_view(bytes).substr(0, bytes.size() - 1)));
    }
    EXPECT_EQ(active.windows(), expected);
    std::vector<Window> addresses;
    for (const Window& window : active.windows()) {
      for (const Window& address : active.Addresses(window)) addresses.push_back(address);
    }
    std::sort(addresses.begin(), addresses.end());
    EXPECT_EQ(std::unique(addresses.begin(), addresses.end()), addresses.end());
  }
}

}  // namespace
}  // namespace millrace::windowing
