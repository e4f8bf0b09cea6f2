#include "windowing/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "windowing/watermark.h"

namespace millrace::windowing {
namespace {

WindowFn Fixed(Millis size, Millis offset = 0) {
  WindowFn fn;
  fn.kind = WindowFnKind::kFixed;
  fn.size = size;
  fn.offset = offset;
  return fn;
}

Strategy FixedStrategy(Millis size, Millis lateness = 0) {
  Strategy strategy;
  strategy.window_fn = Fixed(size);
  strategy.window_kind = WindowKind::kInterval;
  strategy.allowed_lateness = lateness;
  return strategy;
}

TEST(AssignTest, FixedWindowsFloorBelowZeroToo) {
  EXPECT_EQ(AssignWindows(Fixed(10), 0)[0], Window::Interval(0, 10));
  EXPECT_EQ(AssignWindows(Fixed(10), 9)[0], Window::Interval(0, 10));
  EXPECT_EQ(AssignWindows(Fixed(10), 10)[0], Window::Interval(10, 20));
  EXPECT_EQ(AssignWindows(Fixed(10), -1)[0], Window::Interval(-10, 0));
  EXPECT_EQ(AssignWindows(Fixed(10, 3), 2)[0], Window::Interval(-7, 3));
  EXPECT_EQ(AssignWindows(Fixed(10, 3), 3)[0], Window::Interval(3, 13));
}

TEST(AssignTest, SlidingWindowsAllContainTheTimestamp) {
  WindowFn fn;
  fn.kind = WindowFnKind::kSliding;
  fn.size = 10;
  fn.period = 4;
  const WindowList windows = AssignWindows(fn, 9);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0], Window::Interval(8, 18));
  EXPECT_EQ(windows[1], Window::Interval(4, 14));
  EXPECT_EQ(windows[2], Window::Interval(0, 10));
  fn.period = 20;  // gaps between windows: an element may fall into none
  EXPECT_EQ(AssignWindows(fn, 15).size(), 0u);
  EXPECT_EQ(AssignWindows(fn, 5).size(), 1u);
}

TEST(AssignTest, SessionsStartAtTheElement) {
  WindowFn fn;
  fn.kind = WindowFnKind::kSessions;
  fn.gap = 30;
  EXPECT_EQ(AssignWindows(fn, 5)[0], Window::Interval(5, 35));
}

TEST(AssignTest, ExtremesDoNotOverflow) {
  const Millis lowest = std::numeric_limits<Millis>::min();
  const Millis highest = std::numeric_limits<Millis>::max();
  EXPECT_EQ(AssignWindows(Fixed(1000), highest)[0].end, highest);
  EXPECT_EQ(AssignWindows(Fixed(1000), lowest)[0].start, lowest);
  WindowFn sliding;
  sliding.kind = WindowFnKind::kSliding;
  sliding.size = 1000;
  sliding.period = 500;
  EXPECT_LE(AssignWindows(sliding, lowest).size(), 2u);
}

TEST(CollectionTest, LatenessCountsFromTheMaximumTimestamp) {
  const Window window = Window::Interval(0, 10);
  EXPECT_EQ(window.MaxTimestamp(), 9);
  EXPECT_EQ(GarbageCollectionTime(window, FixedStrategy(10)), 9);
  EXPECT_EQ(GarbageCollectionTime(window, FixedStrategy(10, 5)), 14);
  EXPECT_FALSE(IsExpired(window, FixedStrategy(10, 5), 14));
  EXPECT_TRUE(IsExpired(window, FixedStrategy(10, 5), 15));
  EXPECT_FALSE(EndOfWindowPassed(window, 9));
  EXPECT_TRUE(EndOfWindowPassed(window, 10));
}

TEST(CollectionTest, EveryWindowIsCollectedAtTheEndOfTime) {
  Strategy strategy;
  strategy.allowed_lateness = std::numeric_limits<Millis>::max();
  const Window windows[] = {Window::Global(), Window::Interval(0, 10),
                            Window::Interval(kMaxTimestamp - 5, kMaxTimestamp + 5),
                            Window::Custom(kMaxTimestamp, "x")};
  for (const Window& window : windows) {
    EXPECT_TRUE(IsExpired(window, strategy, kMaxTimestamp));
    EXPECT_TRUE(EndOfWindowPassed(window, kMaxTimestamp));
  }
  EXPECT_EQ(GarbageCollectionTime(windows[1], strategy), kGlobalWindowMax);
  strategy.allowed_lateness = 1000;
  EXPECT_EQ(GarbageCollectionTime(Window::Global(), strategy), kGlobalWindowMax + 1000);
  EXPECT_FALSE(EndOfWindowPassed(Window::Global(), kGlobalWindowMax));
}

TEST(SupportTest, ReasonsAreGiven) {
  EXPECT_EQ(WhyUnsupported(FixedStrategy(10)), "");
  EXPECT_NE(WhyUnsupported(FixedStrategy(0)), "");
  EXPECT_NE(WhyUnsupported(FixedStrategy(10, -1)), "");
  Strategy strategy;
  strategy.accumulation = AccumulationMode::kRetracting;
  EXPECT_NE(WhyUnsupported(strategy), "");
  strategy = Strategy();
  strategy.trigger = Trigger::ElementCount(0);
  EXPECT_NE(WhyUnsupported(strategy), "");
  strategy.trigger = Trigger::AfterAny({});
  EXPECT_NE(WhyUnsupported(strategy), "");
  Trigger deep = Trigger::Default();
  for (int i = 0; i < 100; ++i) deep = Trigger::Repeat(deep);
  strategy.trigger = deep;
  EXPECT_NE(WhyUnsupported(strategy), "");
}

TEST(WatermarkTest, MovesOnlyForwardAndWithinTime) {
  Millis watermark = kMinTimestamp;
  EXPECT_TRUE(Advance(watermark, 10));
  EXPECT_FALSE(Advance(watermark, 9));
  EXPECT_FALSE(Advance(watermark, 10));
  EXPECT_EQ(watermark, 10);
  EXPECT_TRUE(Advance(watermark, std::numeric_limits<Millis>::max()));
  EXPECT_EQ(watermark, kMaxTimestamp);
}

TEST(WatermarkTest, PendingAndHoldsBoundIt) {
  EXPECT_EQ(InputWatermark(100, std::nullopt), 100);
  EXPECT_EQ(InputWatermark(100, 40), 40);
  EXPECT_EQ(InputWatermark(100, 140), 100);
  EXPECT_EQ(OutputWatermark(100, 9), 9);
  EXPECT_EQ(Lower(std::nullopt, 3), 3);
  EXPECT_EQ(Lower(5, 3), 3);
  EXPECT_EQ(Lower(std::nullopt, std::nullopt), std::nullopt);
  EXPECT_TRUE(IsDue(9, 9));
  EXPECT_FALSE(IsDue(9, 8));
}

TEST(HoldTest, ElementsHoldOnlyWhatCanStillBeReleased) {
  Strategy strategy = FixedStrategy(10);
  const Window window = Window::Interval(0, 10);
  EXPECT_EQ(ElementHold(strategy, window, 4, 2, 2), 9);
  strategy.output_time = TimestampCombiner::kEarliest;
  EXPECT_EQ(ElementHold(strategy, window, 4, 2, 2), 4);
  EXPECT_EQ(ElementHold(strategy, window, 4, 6, 6), std::nullopt);   // behind the output watermark
  EXPECT_EQ(ElementHold(strategy, window, 4, 12, 3), std::nullopt);  // the window has ended
}

TEST(HoldTest, CollectionHoldsOnlyIfAPaneMayCome) {
  const Window window = Window::Interval(0, 10);
  EXPECT_EQ(CollectionHold(FixedStrategy(10), window, false, 0), std::nullopt);
  Strategy strategy = FixedStrategy(10, 5);
  EXPECT_EQ(CollectionHold(strategy, window, false, 0), 14);
  EXPECT_EQ(CollectionHold(strategy, window, true, 0), std::nullopt);
  strategy.closing = ClosingBehavior::kEmitAlways;
  EXPECT_EQ(CollectionHold(strategy, window, true, 0), 14);
}

TEST(HoldTest, PaneTimestampIsTheHoldWithinTheWindow) {
  Strategy strategy = FixedStrategy(10);
  const Window window = Window::Interval(0, 10);
  EXPECT_EQ(PaneTimestamp(strategy, window, 4), 9);
  strategy.output_time = TimestampCombiner::kLatest;
  EXPECT_EQ(PaneTimestamp(strategy, window, 4), 4);
  EXPECT_EQ(PaneTimestamp(strategy, window, 14), 9);
  EXPECT_EQ(PaneTimestamp(strategy, window, std::nullopt), 9);
  EXPECT_EQ(CombineTimes(TimestampCombiner::kLatest, window, 3, 5), 5);
  EXPECT_EQ(CombineTimes(TimestampCombiner::kEarliest, window, 3, 5), 3);
  EXPECT_EQ(CombineTimes(TimestampCombiner::kEndOfWindow, window, 3, 5), 9);
}

}  // namespace
}  // namespace millrace::windowing
