#include "windowing/pane_rules.h"

#include <gtest/gtest.h>

namespace millrace::windowing {
namespace {

const Window kWindow = Window::Interval(0, 10);

PaneSituation At(Millis input, Millis output, bool empty = false, bool final = false) {
  return {.input_watermark = input, .output_watermark = output, .empty = empty, .final = final};
}

TEST(PaneRulesTest, OnePaneOfTheDefaultTriggerIsAllAtOnce) {
  PaneHistory history;
  const std::optional<Pane> pane = EmitPane(Strategy(), kWindow, At(10, 9, false, true), history);
  ASSERT_TRUE(pane);
  EXPECT_EQ(*pane, (Pane{true, true, PaneTiming::kOnTime, 0, 0}));
}

TEST(PaneRulesTest, EarlyOnTimeLateAreNumbered) {
  PaneHistory history;
  const Strategy strategy;
  EXPECT_EQ(*EmitPane(strategy, kWindow, At(3, 3), history),
            (Pane{true, false, PaneTiming::kEarly, 0, -1}));
  // The watermark at the last instant of the window is still early.
  EXPECT_EQ(*EmitPane(strategy, kWindow, At(9, 9), history),
            (Pane{false, false, PaneTiming::kEarly, 1, -1}));
  EXPECT_EQ(*EmitPane(strategy, kWindow, At(10, 9), history),
            (Pane{false, false, PaneTiming::kOnTime, 2, 0}));
  // Late although the output watermark still waits: there is one on-time pane only.
  EXPECT_EQ(*EmitPane(strategy, kWindow, At(10, 9), history),
            (Pane{false, false, PaneTiming::kLate, 3, 1}));
  EXPECT_EQ(*EmitPane(strategy, kWindow, At(20, 20, false, true), history),
            (Pane{false, true, PaneTiming::kLate, 4, 2}));
}

TEST(PaneRulesTest, FirstPaneBehindTheOutputWatermarkIsLate) {
  PaneHistory history;
  EXPECT_EQ(*EmitPane(Strategy(), kWindow, At(12, 12), history),
            (Pane{true, false, PaneTiming::kLate, 0, 0}));
}

TEST(PaneRulesTest, EmptyPanesOnlyWhereAskedFor) {
  Strategy strategy;
  strategy.on_time = OnTimeBehavior::kFireAlways;
  strategy.closing = ClosingBehavior::kEmitIfNonempty;
  PaneHistory history;
  EXPECT_FALSE(EmitPane(strategy, kWindow, At(3, 3, true), history));
  EXPECT_EQ(history, PaneHistory());
  EXPECT_TRUE(EmitPane(strategy, kWindow, At(10, 9, true), history));
  EXPECT_FALSE(EmitPane(strategy, kWindow, At(11, 9, true), history));  // late
  EXPECT_FALSE(EmitPane(strategy, kWindow, At(20, 20, true, true), history));
  strategy.closing = ClosingBehavior::kEmitAlways;
  const std::optional<Pane> closing = EmitPane(strategy, kWindow, At(20, 20, true, true), history);
  ASSERT_TRUE(closing);
  EXPECT_EQ(*closing, (Pane{false, true, PaneTiming::kLate, 1, 1}));
  strategy.on_time = OnTimeBehavior::kFireIfNonempty;
  PaneHistory other;
  EXPECT_FALSE(EmitPane(strategy, kWindow, At(10, 9, true), other));
}

TEST(PaneRulesTest, HistoryRoundTrips) {
  for (const PaneHistory& history : {PaneHistory{}, PaneHistory{3, 0}, PaneHistory{300, 299}}) {
    std::string bytes;
    history.AppendTo(bytes);
    EXPECT_EQ(bytes.empty(), history.panes == 0);
    EXPECT_EQ(PaneHistory::Parse(bytes), history);
  }
  EXPECT_FALSE(PaneHistory::Parse("\x01"));
  EXPECT_FALSE(PaneHistory::Parse("\x01\x02"));
  EXPECT_FALSE(PaneHistory::Parse("\x01\x01\x01"));
}

}  // namespace
}  // namespace millrace::windowing
