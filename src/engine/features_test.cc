// Timers, state, residuals, splits, side inputs, retries: one job each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/engine_world.h"

namespace millrace::engine {
namespace {

using testing::CountingPlan;
using testing::DecodeElements;
using ::testing::ElementsAre;
using testing::EngineWorld;
using testing::FakeCoder;
using testing::FakeCollection;
using testing::FakeElement;
using testing::FakeRunner;
using testing::FakeStage;
using ::testing::HasSubstr;
using testing::LengthPrefixed;
using testing::MakeChunk;
using ::testing::UnorderedElementsAre;

constexpr windowing::WindowKind kGlobal = windowing::WindowKind::kGlobal;

FakeElement Kv(std::string key, std::string value) {
  FakeElement element;
  element.key = std::move(key);
  element.value = std::move(value);
  return element;
}

// Impulse → KVs → a keyed stage → sink.
Plan KeyedPlan() {
  Plan plan;
  plan.collections = {FakeCollection("kvs", true), FakeCollection("out")};
  plan.stages = {FakeStage("make", InputKind::kImpulse, Work::kBundle, {}, {0}),
                 FakeStage("keyed", InputKind::kElements, Work::kBundle, {0}, {1}),
                 FakeStage("write", InputKind::kElements, Work::kSink, {1}, {})};
  plan.stages[1].keyed = true;
  plan.stages[1].timers = {{"t", "event", true}, {"t", "processing", false}};
  return plan;
}

FakeRunner::Function Makes(std::vector<FakeElement> elements, bool keyed) {
  return [elements = std::move(elements), keyed](const BundleRequest&) {
    BundleResult result;
    result.outputs.push_back(MakeChunk({0}, elements, keyed));
    return result;
  };
}

BundleResult Gives(const std::vector<std::string>& values) {
  std::vector<FakeElement> out;
  for (const std::string& value : values) out.push_back(Kv("", value));
  BundleResult result;
  if (!out.empty()) result.outputs.push_back(MakeChunk({1}, out, false));
  return result;
}

Timer MakeTimer(std::string key, std::string family, windowing::Millis fire,
                windowing::Millis hold) {
  Timer timer;
  timer.transform = "t";
  timer.family = std::move(family);
  timer.key = LengthPrefixed(key);
  timer.tag = std::to_string(fire);
  timer.fire = fire;
  timer.hold = hold;
  return timer;
}

TEST(FeaturesTest, TimersFireInOrderAlsoThoseSetMeanwhile) {
  EngineWorld world(KeyedPlan());
  std::vector<windowing::Millis> fired;
  world.setup = [&fired](FakeRunner& runner) {
    runner.Set({0}, Makes({Kv("k", "1")}, true));
    runner.Set({1}, [&fired](const BundleRequest& request) {
      BundleResult result;
      for (const Timer& timer : request.timers) {
        fired.push_back(timer.fire);
        if (timer.fire == 100) result.timers.push_back(MakeTimer("k", "event", 150, 150));
      }
      if (request.timers.empty()) {
        for (windowing::Millis fire : {200, 100})
          result.timers.push_back(MakeTimer("k", "event", fire, fire));
      }
      return result;
    });
  };
  world.Start();
  world.Settle();
  EXPECT_THAT(fired, ElementsAre(100, 150, 200));
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_TRUE(world.listener->finished->ok());
}

TEST(FeaturesTest, ProcessingTimersWaitForTheClockAndOutliveACrash) {
  EngineWorld world(KeyedPlan());
  int fired = 0;
  world.setup = [&](FakeRunner& runner) {
    runner.Set({0}, Makes({Kv("k", "1")}, true));
    runner.Set({1}, [&](const BundleRequest& request) {
      if (!request.timers.empty()) {
        ++fired;
        return Gives({"fired"});
      }
      BundleResult result;
      result.timers.push_back(MakeTimer("k", "processing",
                                        world.clock.WallNow().micros / 1000 + 5000,
                                        windowing::kMaxTimestamp + 1));
      return result;
    });
  };
  world.Start();
  world.RunFor(std::chrono::seconds(3), std::chrono::milliseconds(100));
  EXPECT_EQ(fired, 0);
  world.Checkpoint();
  world.Settle();
  world.Crash();
  world.Start();
  world.RunFor(std::chrono::seconds(3), std::chrono::milliseconds(100));
  EXPECT_EQ(fired, 1);
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("fired"));
  EXPECT_TRUE(world.listener->finished.has_value());
}

TEST(FeaturesTest, KeysRunOneBundleAtATimeAndKeepTheirState) {
  EngineWorld world(KeyedPlan());
  world.setup = [](FakeRunner& runner) {
    runner.Set({0}, Makes({Kv("a", "1"), Kv("b", "1"), Kv("a", "2")}, true));
    runner.Set({1}, [](const BundleRequest&) { return BundleResult(); });
  };
  world.Start();
  world.executor->RunAll();
  world.runner->RunOne();
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 1u);
  const BundleRequest& request = world.runner->request(0);
  EXPECT_EQ(request.element_count, 3u);
  ASSERT_NE(request.state, nullptr);
  StateKey bag;
  bag.transform = "t";
  bag.name = "s";
  bag.key = LengthPrefixed("a");
  request.state->Append(bag, "x", [](Status) {});
  world.executor->RunAll();
  world.runner->Answer(0, BundleResult());
  world.executor->RunAll();
  EXPECT_TRUE(world.listener->finished.has_value());
  auto it = world.storage().store->NewIterator(storage::Table::kState, "", "");
  it->Seek("");
  ASSERT_TRUE(it->Valid());
  EXPECT_EQ(it->value(), "x");
}

TEST(FeaturesTest, ResidualsComeBackAfterTheirDelay) {
  EngineWorld world(KeyedPlan());
  int runs = 0;
  world.setup = [&runs](FakeRunner& runner) {
    runner.Set({0}, [&runs](const BundleRequest& request) {
      BundleResult result;
      if (++runs == 1) {
        Residual rest;
        rest.element = std::string(request.data[0].view());
        rest.delay = std::chrono::seconds(5);
        result.residuals.push_back(rest);
        return result;
      }
      result.outputs.push_back(MakeChunk({0}, {Kv("k", "v")}, true));
      return result;
    });
    runner.Set({1}, [](const BundleRequest&) { return Gives({"done"}); });
  };
  world.Start();
  world.RunFor(std::chrono::seconds(4), std::chrono::milliseconds(100));
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(world.listener->finished.has_value());
  world.Crash();
  world.Start();
  world.RunFor(std::chrono::seconds(6), std::chrono::milliseconds(100));
  EXPECT_EQ(runs, 2);
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("done"));
  EXPECT_TRUE(world.listener->finished.has_value());
}

TEST(FeaturesTest, TheRestOfASplitBundleComesNext) {
  EngineWorld world(KeyedPlan());
  std::vector<std::string> seen;
  world.setup = [&seen](FakeRunner& runner) {
    runner.Set({0},
               Makes({Kv("a", "1"), Kv("a", "2"), Kv("a", "3"), Kv("a", "4"), Kv("a", "5")}, true));
    runner.Set({1}, [&seen](const BundleRequest& request) {
      std::vector<FakeElement> elements = DecodeElements(request.data, FakeCoder::kKv, kGlobal);
      BundleResult result;
      result.consumed = std::min<size_t>(2, elements.size());
      for (size_t i = 0; i < *result.consumed; ++i) seen.push_back(elements[i].value);
      return result;
    });
  };
  world.Start();
  world.Settle();
  EXPECT_THAT(seen, ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_TRUE(world.listener->finished.has_value());
}

TEST(FeaturesTest, MainInputWaitsForItsSideInput) {
  Plan plan;
  plan.collections = {FakeCollection("side"), FakeCollection("main"), FakeCollection("out")};
  plan.stages = {FakeStage("side", InputKind::kImpulse, Work::kBundle, {}, {0}),
                 FakeStage("main", InputKind::kImpulse, Work::kBundle, {}, {1}),
                 FakeStage("join", InputKind::kElements, Work::kBundle, {1}, {2})};
  SideInputSpec side;
  side.transform = "t";
  side.name = "i";
  side.collection = {0};
  plan.stages[2].side_inputs.push_back(side);
  EngineWorld world(plan);
  world.setup = [](FakeRunner& runner) {
    runner.Set({0}, Makes({Kv("", "s1"), Kv("", "s2")}, false));
    runner.Set({1}, [](const BundleRequest&) {
      BundleResult result;
      result.outputs.push_back(MakeChunk({1}, {Kv("", "m")}, false));
      return result;
    });
    runner.Set({2}, [](const BundleRequest&) { return BundleResult(); });
  };
  world.Start();
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 2u);
  const size_t main = world.runner->request(0).stage.value == 1 ? 0 : 1;
  world.runner->RunOne(main);
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 1u);
  EXPECT_EQ(world.runner->request(0).stage.value, 0u);
  world.runner->RunOne();
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 1u);
  std::string data;
  StateKey key;
  key.kind = StateKind::kIterableSideInput;
  key.transform = "t";
  key.name = "i";
  world.runner->request(0).state->Get(
      key, "", [&](StatusOr<StatePage> page) { data = page.ok() ? page->data : "error"; });
  world.executor->RunAll();
  EXPECT_EQ(data, LengthPrefixed("s1") + LengthPrefixed("s2"));
  world.Settle();
  EXPECT_TRUE(world.listener->finished.has_value());
}

TEST(FeaturesTest, APoisonedElementIsParkedWhileOthersGoOn) {
  EngineWorld world(CountingPlan(1000));
  bool poison = true;
  world.setup = [&poison](FakeRunner& runner) {
    testing::SetCountingFunctions(runner, 1000);
    FakeRunner counting;
    testing::SetCountingFunctions(counting, 1000);
    runner.Set({0}, [&poison](const BundleRequest& request) {
      BundleResult result;
      std::vector<FakeElement> out;
      for (FakeElement& element : DecodeElements(request.data, FakeCoder::kBytes, kGlobal)) {
        if (poison && element.value == "bad") {
          result.status = Internal("ValueError: bad");
          return result;
        }
        FakeElement kv = Kv(element.value, "1");
        kv.timestamp = element.timestamp;
        kv.windows = {windowing::Window::Interval(element.timestamp / 1000 * 1000,
                                                  element.timestamp / 1000 * 1000 + 1000)};
        out.push_back(kv);
      }
      result.outputs.push_back(MakeChunk({0}, out, true));
      return result;
    });
  };
  world.Start();
  for (int i = 0; i < 100; ++i)
    world.topic.Publish(std::to_string(i), i == 37 ? "bad" : "good", 100);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(20), std::chrono::milliseconds(100));
  EXPECT_EQ(world.topic.unacked(), 1u);
  EXPECT_THAT(world.listener->messages, ::testing::Contains(HasSubstr("ValueError: bad")));
  EXPECT_TRUE(world.output.values().empty());  // the parked element holds the watermark
  poison = false;
  world.RunFor(std::chrono::seconds(61), std::chrono::milliseconds(500));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("good@0=99", "bad@0=1"));
  EXPECT_EQ(world.topic.unacked(), 0u);
}

TEST(FeaturesTest, WhenAllFailsTheStageBacksOffAndRecovers) {
  EngineWorld world(CountingPlan(1000));
  bool down = true;
  uint64_t failures = 0;
  FakeRunner counting;
  testing::SetCountingFunctions(counting, 1000);
  world.setup = [&](FakeRunner& runner) {
    testing::SetCountingFunctions(runner, 1000);
    if (!down) return;
    runner.Set({0}, [&](const BundleRequest& request) {
      BundleResult result;
      if (down) {
        ++failures;
        result.status = Internal("the database is down");
        return result;
      }
      std::vector<FakeElement> out;
      for (FakeElement& element : DecodeElements(request.data, FakeCoder::kBytes, kGlobal)) {
        FakeElement kv = Kv(element.value, "1");
        kv.timestamp = element.timestamp;
        kv.windows = {windowing::Window::Interval(0, 1000)};
        out.push_back(kv);
      }
      result.outputs.push_back(MakeChunk({0}, out, true));
      return result;
    });
  };
  world.Start();
  for (int i = 0; i < 1000; ++i) world.topic.Publish(std::to_string(i), "k", 100);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(30), std::chrono::milliseconds(100));
  EXPECT_LT(failures, 60u);
  down = false;
  world.RunFor(std::chrono::seconds(61), std::chrono::milliseconds(500));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("k@0=1000"));
  EXPECT_EQ(world.topic.unacked(), 0u);
}

}  // namespace
}  // namespace millrace::engine
