#include "windowing/trigger.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::windowing {
namespace {

// One cell under one trigger; `ended` is whether the watermark has passed the window's end.
struct Cell {
  explicit Cell(const Trigger& trigger, bool merging = false) : machine(trigger, merging) {
    Strategy strategy;
    strategy.trigger = trigger;
    EXPECT_EQ(WhyUnsupported(strategy), "");
  }

  TriggerClock clock() const { return {now, ended}; }
  bool Ready() const { return machine.ShouldFire(state, clock()); }
  void Add(int64_t count = 1) { machine.OnElements(state, clock(), count); }
  // Fires if it should.
  bool Fire() {
    if (!Ready()) return false;
    machine.OnFire(state, clock());
    std::string bytes;
    state.AppendTo(bytes);
    EXPECT_EQ(TriggerState::Parse(bytes), state);
    return true;
  }
  bool AddAndFire(int64_t count = 1) {
    Add(count);
    return Fire();
  }
  bool Finished() const { return machine.IsFinished(state); }
  std::optional<Millis> Timer() const { return machine.NextTimer(state, now); }

  TriggerMachine machine;
  TriggerState state;
  Millis now = 0;
  bool ended = false;
};

TEST(TriggerTest, DefaultFiresAtTheEndAndAgainForLateData) {
  Cell cell(Trigger::Default());
  EXPECT_FALSE(cell.AddAndFire());
  cell.ended = true;
  EXPECT_TRUE(cell.Fire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.Finished());
  EXPECT_TRUE(cell.state.empty());
  EXPECT_TRUE(cell.machine.IsDefault());
}

TEST(TriggerTest, ElementCountFiresOnceAtItsCount) {
  Cell cell(Trigger::ElementCount(3));
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_TRUE(cell.Finished());
  EXPECT_FALSE(cell.Ready());
  cell.ended = true;
  EXPECT_FALSE(cell.Ready());
}

TEST(TriggerTest, RepeatedCountStartsAnewAndKeepsNoRemainder) {
  Cell cell(Trigger::Repeat(Trigger::ElementCount(2)));
  EXPECT_TRUE(cell.AddAndFire(5));
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.Finished());
  EXPECT_TRUE(cell.state.empty());
}

TEST(TriggerTest, ProcessingTimeCountsFromTheFirstElement) {
  Cell cell(Trigger::Repeat(Trigger::AfterProcessingTime(100)));
  cell.now = 1000;
  EXPECT_EQ(cell.Timer(), std::nullopt);
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_EQ(cell.Timer(), 1100);
  cell.now = 1050;
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_EQ(cell.Timer(), 1100);
  cell.now = 1099;
  EXPECT_FALSE(cell.Fire());
  cell.now = 1100;
  EXPECT_EQ(cell.Timer(), std::nullopt);
  EXPECT_TRUE(cell.Fire());
  EXPECT_FALSE(cell.Fire());
  cell.now = 1200;
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_EQ(cell.Timer(), 1300);
}

TEST(TriggerTest, ProcessingTimeTransformsApplyInOrder) {
  Trigger trigger = Trigger::AfterProcessingTime(30);
  trigger.transforms.push_back({.align = true, .period = 100, .offset = 5});
  for (const auto& [now, target] :
       {std::pair<Millis, Millis>{0, 105}, {75, 105}, {76, 205}, {-35, 5}, {-36, 5}, {-24, 105}}) {
    Cell cell(trigger);
    cell.now = now;
    cell.Add();
    EXPECT_EQ(cell.Timer(), target) << now;
  }
}

TEST(TriggerTest, SynchronizedProcessingTimeIsDueAtOnce) {
  Trigger trigger;
  trigger.kind = Trigger::Kind::kAfterSynchronizedProcessingTime;
  Cell cell(trigger);
  cell.now = 7;
  EXPECT_FALSE(cell.Ready());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, EndOfWindowAloneFinishes) {
  Cell cell(Trigger::AfterEndOfWindow({}, {}));
  EXPECT_FALSE(cell.AddAndFire());
  cell.ended = true;
  EXPECT_TRUE(cell.Fire());
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, EarlyPartRepeatsAndEndFinishes) {
  Cell cell(Trigger::AfterEndOfWindow(Trigger::ElementCount(2), {}));
  EXPECT_TRUE(cell.AddAndFire(2));
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire());
  cell.ended = true;
  EXPECT_TRUE(cell.Fire());
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, LatePartTakesOverAtTheEnd) {
  Cell cell(Trigger::AfterEndOfWindow({}, Trigger::ElementCount(2)));
  EXPECT_FALSE(cell.AddAndFire(10));
  cell.ended = true;
  EXPECT_TRUE(cell.Fire());
  EXPECT_FALSE(cell.Ready());
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.Finished());
}

TEST(TriggerTest, EarlyAndLate) {
  Cell cell(Trigger::AfterEndOfWindow(Trigger::AfterProcessingTime(10), Trigger::ElementCount(1)));
  EXPECT_FALSE(cell.AddAndFire());
  cell.now = 10;
  EXPECT_TRUE(cell.Fire());
  EXPECT_FALSE(cell.AddAndFire());
  cell.ended = true;
  EXPECT_TRUE(cell.Fire());
  EXPECT_EQ(cell.Timer(), std::nullopt);  // the early part's target went with it
  cell.now = 100;
  EXPECT_FALSE(cell.Ready());
  EXPECT_TRUE(cell.AddAndFire());
}

TEST(TriggerTest, LateElementsOfAWindowThatNeverFiredAreOnTimeFirst) {
  Cell cell(Trigger::AfterEndOfWindow(Trigger::ElementCount(9), Trigger::ElementCount(9)));
  cell.ended = true;
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire());
}

TEST(TriggerTest, AlwaysAndNever) {
  Cell always(Trigger::Always());
  EXPECT_TRUE(always.AddAndFire());
  EXPECT_TRUE(always.AddAndFire());
  EXPECT_FALSE(always.Finished());
  Cell never(Trigger::Never());
  never.ended = true;
  EXPECT_FALSE(never.AddAndFire());
  EXPECT_FALSE(never.Finished());
}

TEST(TriggerTest, AfterAllWaitsForEveryPart) {
  Cell cell(Trigger::AfterAll({Trigger::ElementCount(2), Trigger::AfterProcessingTime(50)}));
  EXPECT_FALSE(cell.AddAndFire(2));
  cell.now = 50;
  EXPECT_TRUE(cell.Fire());
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, AfterAnyTakesTheFirst) {
  const Trigger any =
      Trigger::AfterAny({Trigger::ElementCount(3), Trigger::AfterProcessingTime(50)});
  Cell cell(Trigger::Repeat(any));
  EXPECT_FALSE(cell.AddAndFire(2));
  cell.now = 50;
  EXPECT_TRUE(cell.Fire());
  // The count of the pane that is gone does not go on.
  EXPECT_FALSE(cell.AddAndFire(2));
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_EQ(cell.Timer(), std::nullopt);
  Cell once(any);
  EXPECT_TRUE(once.AddAndFire(3));
  EXPECT_TRUE(once.Finished());
}

TEST(TriggerTest, AfterEachRunsPartsInTurn) {
  Cell cell(Trigger::AfterEach(
      {Trigger::ElementCount(1), Trigger::ElementCount(2), Trigger::ElementCount(3)}));
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.AddAndFire(2));
  EXPECT_FALSE(cell.Finished());
  EXPECT_TRUE(cell.AddAndFire());
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, AfterEachMayEndInARepeat) {
  Cell cell(
      Trigger::AfterEach({Trigger::ElementCount(3), Trigger::Repeat(Trigger::ElementCount(1))}));
  EXPECT_FALSE(cell.AddAndFire(2));
  EXPECT_TRUE(cell.AddAndFire());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cell.AddAndFire());
  EXPECT_FALSE(cell.Finished());
}

TEST(TriggerTest, OrFinallyEndsARepeat) {
  Cell cell(
      Trigger::OrFinally(Trigger::Repeat(Trigger::ElementCount(2)), Trigger::ElementCount(5)));
  EXPECT_TRUE(cell.AddAndFire(2));
  EXPECT_FALSE(cell.Finished());
  EXPECT_TRUE(cell.AddAndFire(2));
  EXPECT_FALSE(cell.Finished());
  EXPECT_TRUE(cell.AddAndFire());  // the fifth in all: finally counts over panes
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, OrFinallyEndsWithItsMainPartToo) {
  Cell cell(Trigger::OrFinally(Trigger::ElementCount(2), Trigger::AfterProcessingTime(50)));
  EXPECT_TRUE(cell.AddAndFire(2));
  EXPECT_TRUE(cell.Finished());
}

TEST(TriggerTest, RepeatedCompositesStartAnew) {
  Cell cell(
      Trigger::Repeat(Trigger::AfterEach({Trigger::ElementCount(1), Trigger::ElementCount(2)})));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(cell.AddAndFire());
    EXPECT_FALSE(cell.AddAndFire());
    EXPECT_TRUE(cell.AddAndFire());
  }
}

// ---- Merging ------------------------------------------------------------------------------------

TriggerState Merged(const Cell& a, const Cell& b, bool ended = false,
                    bool result_is_first = false) {
  const TriggerState states[] = {a.state, b.state};
  return a.machine.Merge(states, result_is_first, {std::max(a.now, b.now), ended});
}

TEST(TriggerMergeTest, CountsAddUnlessOneHadFired) {
  const Trigger count = Trigger::ElementCount(5);
  Cell a(count, true);
  Cell b(count, true);
  a.Add(2);
  b.Add(3);
  Cell c(count, true);
  c.state = Merged(a, b);
  EXPECT_TRUE(c.Ready());
  a.AddAndFire(3);
  c.state = Merged(a, b);
  EXPECT_TRUE(c.Finished());
}

TEST(TriggerMergeTest, RepeatedCountsGoOn) {
  const Trigger count = Trigger::Repeat(Trigger::ElementCount(3));
  Cell a(count, true);
  Cell b(count, true);
  EXPECT_TRUE(a.AddAndFire(3));
  a.Add(1);
  b.Add(1);
  Cell c(count, true);
  c.state = Merged(a, b);
  EXPECT_FALSE(c.Fire());
  EXPECT_TRUE(c.AddAndFire());
}

TEST(TriggerMergeTest, ProcessingTimeKeepsTheEarlierTarget) {
  const Trigger delay = Trigger::AfterProcessingTime(100);
  Cell a(delay, true);
  Cell b(delay, true);
  a.Add();
  b.now = 40;
  b.Add();
  Cell c(delay, true);
  c.now = 40;
  c.state = Merged(b, a);
  EXPECT_EQ(c.Timer(), 100);
}

TEST(TriggerMergeTest, EndIsToFireAgainIfTheWindowGrewBeyondTheWatermark) {
  const Trigger trigger =
      Trigger::AfterEndOfWindow(Trigger::ElementCount(2), Trigger::ElementCount(1));
  Cell a(trigger, true);
  Cell b(trigger, true);
  a.Add();
  a.ended = true;
  EXPECT_TRUE(a.Fire());
  b.Add();
  Cell c(trigger, true);
  c.state = Merged(a, b, /*ended=*/false);
  EXPECT_FALSE(c.Fire());
  c.ended = true;
  EXPECT_TRUE(c.Fire());
  EXPECT_TRUE(c.AddAndFire());
}

TEST(TriggerMergeTest, EndStaysFiredOnlyIfFiredInAll) {
  const Trigger trigger = Trigger::AfterEndOfWindow({}, Trigger::ElementCount(2));
  Cell a(trigger, true);
  Cell b(trigger, true);
  a.Add();
  a.ended = true;
  EXPECT_TRUE(a.Fire());
  a.Add();
  b.Add();
  Cell c(trigger, true);
  c.ended = true;
  c.state = Merged(a, b, /*ended=*/true);
  EXPECT_TRUE(c.Fire());  // b's element has not been in an on-time pane
  b.ended = true;
  EXPECT_TRUE(b.Fire());
  c.state = Merged(a, b, /*ended=*/true);
  EXPECT_FALSE(c.Fire());  // one late element from a
  EXPECT_TRUE(c.AddAndFire());
}

TEST(TriggerMergeTest, FinishedEndOfWindowIsRevived) {
  const Trigger trigger = Trigger::AfterEndOfWindow({}, {});
  Cell a(trigger, true);
  Cell b(trigger, true);
  a.ended = b.ended = true;
  a.Fire();
  Cell c(trigger, true);
  c.state = Merged(a, b, true, /*result_is_first=*/true);
  EXPECT_FALSE(c.Finished());
  b.Fire();
  c.state = Merged(a, b, true);
  EXPECT_TRUE(c.Finished());
  c.state = Merged(a, b, false);
  EXPECT_FALSE(c.Finished());
}

TEST(TriggerMergeTest, LaterPartsOfAfterEachBeginAnew) {
  const Trigger each = Trigger::AfterEach(
      {Trigger::AfterEndOfWindow({}, {}), Trigger::Repeat(Trigger::ElementCount(2))});
  Cell a(each, true);
  Cell b(each, true);
  a.ended = true;
  EXPECT_TRUE(a.AddAndFire());
  a.Add();
  b.Add();
  Cell c(each, true);
  c.state = Merged(a, b, false);
  EXPECT_FALSE(c.Fire());
  c.ended = true;
  EXPECT_TRUE(c.Fire());
  EXPECT_FALSE(c.Fire());
  EXPECT_FALSE(c.AddAndFire());
  EXPECT_TRUE(c.AddAndFire());
}

// ---- State --------------------------------------------------------------------------------------

TEST(TriggerStateTest, OnlyWhatWasWrittenIsRead) {
  TriggerState state{.finished = 6, .slots = {{1, 5}, {3, -1}, {63, kMaxTimestamp}}};
  std::string bytes;
  state.AppendTo(bytes);
  EXPECT_EQ(TriggerState::Parse(bytes), state);
  EXPECT_FALSE(TriggerState::Parse(std::string_view(bytes).substr(0, bytes.size() - 1)));
  EXPECT_FALSE(TriggerState::Parse(std::string_view("\0\x40\x01", 3)));          // node 64
  EXPECT_FALSE(TriggerState::Parse(std::string_view("\0\x02\x01\x02\x01", 5)));  // node twice
  EXPECT_FALSE(TriggerState::Parse(std::string_view("\0", 1)));                  // empty, written
}

Trigger RandomTrigger(std::mt19937& random, int depth) {
  const auto sub = [&] { return RandomTrigger(random, depth - 1); };
  switch (random() % (depth > 0 ? 12 : 7)) {
    case 0:
      return Trigger::Default();
    case 1:
    case 2:
      return Trigger::ElementCount(1 + random() % 3);
    case 3:
      return Trigger::AfterProcessingTime(random() % 20);
    case 4:
      return Trigger::Always();
    case 5:
      return Trigger::Never();
    case 6:
      return Trigger::AfterEndOfWindow({}, {});
    case 7:
      return Trigger::Repeat(sub());
    case 8:
      return Trigger::AfterEndOfWindow(sub(), sub());
    case 9:
      return Trigger::AfterAll({sub(), sub()});
    case 10:
      return Trigger::AfterAny({sub(), sub()});
    default:
      return random() % 2 == 0 ? Trigger::AfterEach({sub(), sub()})
                               : Trigger::OrFinally(sub(), sub());
  }
}

// Whatever the tree and the events: states survive their codec, a finished trigger does not fire,
// n elements at once are n elements one by one, and timers lie in the future.
TEST(TriggerStateTest, RandomTreesKeepTheRules) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const Trigger trigger = RandomTrigger(random, 3);
    const bool merging = random() % 2 == 0;
    Cell cell(trigger, merging);
    Cell other(trigger, merging);
    for (int step = 0; step < 20 && !cell.Finished(); ++step) {
      const int64_t count = random() % 4;
      TriggerState singly = cell.state;
      for (int i = 0; i < count; ++i) cell.machine.OnElements(singly, cell.clock());
      if (count > 0) cell.Add(count);
      ASSERT_EQ(singly, cell.state);
      if (random() % 3 == 0) cell.Fire();
      if (merging && random() % 4 == 0) {
        if (!other.Finished()) other.AddAndFire();
        cell.state = Merged(cell, other, cell.ended, random() % 2 == 0);
        other.state = TriggerState();
      }
      cell.now += random() % 10;
      other.now = cell.now;
      if (step > 10) cell.ended = true;
      const std::optional<Millis> timer = cell.Timer();
      ASSERT_TRUE(!timer || *timer > cell.now);
    }
    ASSERT_FALSE(cell.Finished() && cell.Ready());
  }
}

}  // namespace
}  // namespace millrace::windowing
