// The parts of this folder put together as a grouping puts them: values of one key, window by
// window. Shows the order of calls, and pins what Beam's trigger transcripts expect of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "windowing/pane_rules.h"
#include "windowing/sessions.h"
#include "windowing/trigger.h"
#include "windowing/watermark.h"

namespace millrace::windowing {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Output {
  Window window;
  std::vector<Millis> values;
  Millis timestamp;
  Pane pane;

  bool operator==(const Output&) const = default;
};

void PrintTo(const Output& output, std::ostream* os) {
  *os << "[" << output.window.start << "," << output.window.end << ") "
      << testing::PrintToString(output.values) << " at " << output.timestamp << " pane "
      << output.pane.first << output.pane.last << " " << static_cast<int>(output.pane.timing) << " "
      << output.pane.index << " " << output.pane.nonspeculative_index;
}

// Values are their own timestamps.
class Grouping {
 public:
  explicit Grouping(Strategy strategy)
      : strategy_(std::move(strategy)), machine_(strategy_.trigger, strategy_.merging) {}

  std::vector<Output> Add(const std::vector<Millis>& values) {
    std::vector<std::pair<Millis, Window>> placed;
    for (const Millis value : values) {
      for (const Window& window : AssignWindows(strategy_.window_fn, value)) {
        if (IsExpired(window, strategy_, input_)) continue;
        if (strategy_.merging) active_.Add(window);
        placed.emplace_back(value, window);
      }
    }
    if (strategy_.merging) MergeCells();
    std::vector<Window> touched;
    for (auto& [value, window] : placed) {
      if (strategy_.merging) window = *active_.Current(window);
      AddOne(value, window);
      touched.push_back(window);
    }
    std::vector<Output> outputs;
    for (const Window& window : touched) Fire(window, &outputs);
    output_ = std::max(output_, OutputWatermark(input_, SmallestHold()));
    return outputs;
  }

  std::vector<Output> Watermark(Millis watermark) {
    Advance(input_, watermark);
    std::vector<Output> outputs;
    std::vector<Window> windows;
    for (const auto& [window, cell] : cells_) windows.push_back(window);
    for (const Window& window : windows) {
      Fire(window, &outputs);
      if (IsExpired(window, strategy_, input_)) Collect(window, &outputs);
    }
    Advance(output_, OutputWatermark(input_, SmallestHold()));
    return outputs;
  }

  std::vector<Output> Clock(Millis now) {
    now_ = now;
    return Watermark(input_);
  }

  Millis output_watermark() const { return output_; }
  size_t cells() const { return cells_.size(); }

 private:
  struct Cell {
    std::vector<Millis> values;
    int64_t fresh = 0;
    TriggerState trigger;
    PaneHistory history;
    std::optional<Millis> hold;
  };

  TriggerClock ClockOf(const Window& window) const {
    return {now_, EndOfWindowPassed(window, input_)};
  }

  std::optional<Millis> SmallestHold() const {
    std::optional<Millis> smallest;
    for (const auto& [window, cell] : cells_) smallest = Lower(smallest, cell.hold);
    return smallest;
  }

  void AddOne(Millis value, const Window& window) {
    Cell& cell = cells_[window];
    if (machine_.IsFinished(cell.trigger)) return;
    cell.values.push_back(value);
    ++cell.fresh;
    const std::optional<Millis> hold = ElementHold(strategy_, window, value, input_, output_);
    if (hold) {
      cell.hold = cell.hold ? CombineTimes(strategy_.output_time, window, *cell.hold, *hold) : hold;
    }
    machine_.OnElements(cell.trigger, ClockOf(window));
  }

  void MergeCells() {
    for (const WindowMerge& merge : active_.Merge()) {
      Cell result;
      std::vector<TriggerState> triggers;
      for (const Window& window : merge.merged) {
        const Cell cell = cells_[window];
        cells_.erase(window);
        result.values.insert(result.values.end(), cell.values.begin(), cell.values.end());
        result.fresh += cell.fresh;
        triggers.push_back(cell.trigger);
        if (window == merge.result) result.history = cell.history;
        if (!cell.hold) continue;
        result.hold = CombineTimes(strategy_.output_time, merge.result, *cell.hold,
                                   result.hold.value_or(*cell.hold));
      }
      result.trigger = machine_.Merge(triggers, merge.result_is_merged, ClockOf(merge.result));
      cells_[merge.result] = std::move(result);
    }
  }

  void Fire(const Window& window, std::vector<Output>* outputs) {
    Cell& cell = cells_[window];
    if (!machine_.ShouldFire(cell.trigger, ClockOf(window))) return;
    machine_.OnFire(cell.trigger, ClockOf(window));
    Emit(window, machine_.IsFinished(cell.trigger) || IsExpired(window, strategy_, input_),
         outputs);
  }

  void Emit(const Window& window, bool final, std::vector<Output>* outputs) {
    Cell& cell = cells_[window];
    const PaneSituation situation = {.input_watermark = input_,
                                     .output_watermark = output_,
                                     .empty = cell.fresh == 0,
                                     .final = final};
    const std::optional<Pane> pane = EmitPane(strategy_, window, situation, cell.history);
    if (!pane) return;
    std::vector<Millis> values = cell.values;
    std::sort(values.begin(), values.end());
    outputs->push_back({window, values, PaneTimestamp(strategy_, window, cell.hold), *pane});
    cell.hold.reset();
    cell.fresh = 0;
    if (strategy_.accumulation == AccumulationMode::kDiscarding || final) cell.values.clear();
  }

  void Collect(const Window& window, std::vector<Output>* outputs) {
    if (!machine_.IsFinished(cells_[window].trigger) && cells_[window].fresh > 0) {
      Emit(window, /*final=*/true, outputs);
    }
    cells_.erase(window);
    active_.Remove(window);
  }

  const Strategy strategy_;
  const TriggerMachine machine_;
  std::map<Window, Cell> cells_;
  ActiveWindows active_;
  Millis input_ = kMinTimestamp;
  Millis output_ = kMinTimestamp;
  Millis now_ = 0;
};

Strategy Fixed(Trigger trigger, Millis lateness, AccumulationMode mode) {
  Strategy strategy;
  strategy.window_fn.kind = WindowFnKind::kFixed;
  strategy.window_fn.size = 10;
  strategy.window_kind = WindowKind::kInterval;
  strategy.trigger = std::move(trigger);
  strategy.allowed_lateness = lateness;
  strategy.accumulation = mode;
  return strategy;
}

Window W(Millis start, Millis end) { return Window::Interval(start, end); }

constexpr AccumulationMode kDiscarding = AccumulationMode::kDiscarding;
constexpr AccumulationMode kAccumulating = AccumulationMode::kAccumulating;

TEST(GroupingTest, DefaultTriggerGivesOnePaneAndDropsLateData) {
  Grouping grouping(Fixed(Trigger::Default(), 0, kDiscarding));
  EXPECT_THAT(grouping.Add({1, 12, 3}), IsEmpty());
  EXPECT_THAT(grouping.Watermark(9), IsEmpty());
  EXPECT_EQ(grouping.output_watermark(), 9);
  EXPECT_THAT(grouping.Watermark(10),
              ElementsAre(Output{W(0, 10), {1, 3}, 9, {true, true, PaneTiming::kOnTime, 0, 0}}));
  EXPECT_EQ(grouping.output_watermark(), 10);
  EXPECT_THAT(grouping.Add({4}), IsEmpty());
  EXPECT_THAT(grouping.Watermark(kMaxTimestamp),
              ElementsAre(Output{W(10, 20), {12}, 19, {true, true, PaneTiming::kOnTime, 0, 0}}));
  EXPECT_EQ(grouping.cells(), 0u);
}

TEST(GroupingTest, LatenessRefiresTheDefaultTrigger) {
  Grouping grouping(Fixed(Trigger::Default(), 5, kAccumulating));
  grouping.Add({1, 2});
  EXPECT_THAT(grouping.Watermark(10),
              ElementsAre(Output{W(0, 10), {1, 2}, 9, {true, false, PaneTiming::kOnTime, 0, 0}}));
  EXPECT_THAT(grouping.Watermark(12), IsEmpty());
  EXPECT_THAT(grouping.Add({7}),
              ElementsAre(Output{W(0, 10), {1, 2, 7}, 9, {false, false, PaneTiming::kLate, 1, 1}}));
  EXPECT_THAT(grouping.Watermark(14), IsEmpty());
  EXPECT_EQ(grouping.cells(), 1u);
  EXPECT_THAT(grouping.Watermark(15), IsEmpty());  // nothing new: no closing pane
  EXPECT_EQ(grouping.cells(), 0u);
  EXPECT_THAT(grouping.Add({8}), IsEmpty());
}

TEST(GroupingTest, GlobalWindowEndsBeforeTheEndOfTime) {
  Strategy strategy;
  Grouping grouping(strategy);
  grouping.Add({1, 2});
  EXPECT_THAT(grouping.Watermark(kGlobalWindowMax), IsEmpty());
  EXPECT_THAT(
      grouping.Watermark(kMaxTimestamp),
      ElementsAre(Output{
          Window::Global(), {1, 2}, kGlobalWindowMax, {true, true, PaneTiming::kOnTime, 0, 0}}));
}

TEST(GroupingTest, EarlyPanesAndAnEmptyOnTimePane) {
  Grouping grouping(Fixed(Trigger::AfterEndOfWindow(Trigger::ElementCount(2), {}), 0, kDiscarding));
  EXPECT_THAT(grouping.Add({3, 4}),
              ElementsAre(Output{W(0, 10), {3, 4}, 9, {true, false, PaneTiming::kEarly, 0, -1}}));
  EXPECT_THAT(grouping.Add({5}), IsEmpty());
  EXPECT_THAT(grouping.Add({16, 17}), testing::SizeIs(1));
  EXPECT_THAT(grouping.Watermark(30),
              ElementsAre(Output{W(0, 10), {5}, 9, {false, true, PaneTiming::kOnTime, 1, 0}},
                          Output{W(10, 20), {}, 19, {false, true, PaneTiming::kOnTime, 1, 0}}));
}

TEST(GroupingTest, FinishedCountDropsWhatFollows) {
  Grouping grouping(Fixed(Trigger::ElementCount(2), 10, kDiscarding));
  EXPECT_THAT(grouping.Add({1, 2, 3}),
              ElementsAre(Output{W(0, 10), {1, 2, 3}, 9, {true, true, PaneTiming::kEarly, 0, -1}}));
  EXPECT_THAT(grouping.Add({4, 5, 6}), IsEmpty());
  EXPECT_EQ(grouping.cells(), 1u);  // remembered until collection
  EXPECT_THAT(grouping.Watermark(25), IsEmpty());
  EXPECT_EQ(grouping.cells(), 0u);
}

TEST(GroupingTest, HoldsGiveTheTimestampUnlessAllWasLate) {
  Strategy strategy = Fixed(Trigger::Default(), 0, kDiscarding);
  strategy.output_time = TimestampCombiner::kEarliest;
  Grouping some(strategy);
  some.Watermark(5);
  some.Add({2, 7, 8});
  EXPECT_EQ(some.output_watermark(), 5);
  some.Watermark(9);
  EXPECT_EQ(some.output_watermark(), 7);
  EXPECT_THAT(some.Watermark(11), ElementsAre(testing::Field(&Output::timestamp, 7)));
  Grouping all(strategy);
  all.Watermark(8);
  all.Add({2, 3, 7});
  EXPECT_THAT(all.Watermark(11), ElementsAre(testing::Field(&Output::timestamp, 9)));
  strategy.output_time = TimestampCombiner::kLatest;
  Grouping latest(strategy);
  latest.Add({2, 3, 7});
  EXPECT_THAT(latest.Watermark(11), ElementsAre(testing::Field(&Output::timestamp, 7)));
}

TEST(GroupingTest, SessionsWithEarlyAndLatePanes) {
  Strategy strategy =
      Fixed(Trigger::AfterEndOfWindow(Trigger::ElementCount(2), Trigger::ElementCount(3)), 200,
            kAccumulating);
  strategy.window_fn.kind = WindowFnKind::kSessions;
  strategy.window_fn.gap = 20;
  strategy.merging = true;
  Grouping grouping(strategy);
  EXPECT_THAT(
      grouping.Add({100, 105}),
      ElementsAre(Output{W(100, 125), {100, 105}, 124, {true, false, PaneTiming::kEarly, 0, -1}}));
  EXPECT_THAT(grouping.Add({110}), IsEmpty());
  // A grown window numbers its panes anew.
  EXPECT_THAT(
      grouping.Add({115}),
      ElementsAre(Output{
          W(100, 135), {100, 105, 110, 115}, 134, {true, false, PaneTiming::kEarly, 0, -1}}));
  EXPECT_THAT(grouping.Add({101}), IsEmpty());
  EXPECT_THAT(
      grouping.Watermark(200),
      ElementsAre(Output{
          W(100, 135), {100, 101, 105, 110, 115}, 134, {false, false, PaneTiming::kOnTime, 1, 0}}));
  EXPECT_THAT(grouping.Add({102, 103}), IsEmpty());
  EXPECT_THAT(grouping.Add({104}), ElementsAre(Output{W(100, 135),
                                                      {100, 101, 102, 103, 104, 105, 110, 115},
                                                      134,
                                                      {false, false, PaneTiming::kLate, 2, 1}}));
}

TEST(GroupingTest, ProcessingTimePanes) {
  Strategy strategy = Fixed(Trigger::Repeat(Trigger::AfterProcessingTime(50)), 0, kDiscarding);
  Grouping grouping(strategy);
  grouping.Add({1});
  EXPECT_THAT(grouping.Clock(49), IsEmpty());
  EXPECT_THAT(grouping.Clock(50),
              ElementsAre(Output{W(0, 10), {1}, 9, {true, false, PaneTiming::kEarly, 0, -1}}));
  grouping.Add({2});
  // The window is collected before the next target: what waits goes out as the last pane.
  EXPECT_THAT(grouping.Watermark(10),
              ElementsAre(Output{W(0, 10), {2}, 9, {false, true, PaneTiming::kOnTime, 1, 0}}));
}

}  // namespace
}  // namespace millrace::windowing
