#include "engine/job.h"

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
using testing::MakeChunk;
using testing::SetCountingFunctions;
using ::testing::UnorderedElementsAre;

// Impulse → make n elements → upper stage → sink.
Plan BoundedPlan() {
  Plan plan;
  plan.collections = {FakeCollection("made"), FakeCollection("done")};
  plan.stages = {FakeStage("make", InputKind::kImpulse, Work::kBundle, {}, {0}),
                 FakeStage("work", InputKind::kElements, Work::kBundle, {0}, {1}),
                 FakeStage("write", InputKind::kElements, Work::kSink, {1}, {})};
  return plan;
}

void SetBoundedFunctions(FakeRunner& runner, int elements) {
  runner.Set({0}, [elements](const BundleRequest&) {
    std::vector<FakeElement> out;
    for (int i = 0; i < elements; ++i) {
      FakeElement element;
      element.value = std::to_string(i);
      out.push_back(element);
    }
    BundleResult result;
    result.outputs.push_back(MakeChunk({0}, out, false));
    return result;
  });
  runner.Set({1}, [](const BundleRequest& request) {
    std::vector<FakeElement> out =
        DecodeElements(request.data, FakeCoder::kBytes, windowing::WindowKind::kGlobal);
    for (FakeElement& element : out) element.value += "!";
    BundleResult result;
    result.outputs.push_back(MakeChunk({1}, out, false));
    return result;
  });
}

std::multiset<std::string> Expected(int elements) {
  std::multiset<std::string> all;
  for (int i = 0; i < elements; ++i) all.insert(std::to_string(i) + "!");
  return all;
}

int64_t CountOf(EngineWorld& world, const std::string& collection) {
  int64_t count = -1;
  world.job->Metrics([&](std::vector<Metric>, std::vector<Metric> committed) {
    for (const Metric& metric : committed) {
      auto label = metric.labels.find("PCOLLECTION");
      std::string_view payload = metric.payload;
      if (label != metric.labels.end() && label->second == collection)
        windowing::ParseVarint(payload, &count);
    }
  });
  world.executor->RunAll();
  return count;
}

TEST(JobTest, BoundedJobEnds) {
  EngineWorld world(BoundedPlan());
  world.setup = [](FakeRunner& runner) { SetBoundedFunctions(runner, 12000); };
  world.Start();
  world.Settle();
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_TRUE(world.listener->finished->ok()) << *world.listener->finished;
  EXPECT_EQ(world.output.values(), Expected(12000));
  EXPECT_EQ(CountOf(world, "made"), 12000);
  EXPECT_EQ(CountOf(world, "done"), 12000);
  EXPECT_EQ(world.runner->runs, 1u + 3u);  // 5000, 5000, 2000
}

TEST(JobTest, BundlesAreCutBySlots) {
  EngineWorld world(BoundedPlan());
  world.setup = [](FakeRunner& runner) {
    SetBoundedFunctions(runner, 20000);
    runner.SetSlots(2);
  };
  world.Start();
  world.executor->RunAll();
  world.runner->RunOne();
  world.executor->RunAll();
  EXPECT_EQ(world.runner->waiting(), 2u);
  EXPECT_EQ(world.runner->request(0).element_count, 5000u);
  world.Settle();
  EXPECT_EQ(world.output.values(), Expected(20000));
}

TEST(JobTest, NoWorkerNoBundle) {
  EngineWorld world(BoundedPlan());
  world.setup = [](FakeRunner& runner) {
    SetBoundedFunctions(runner, 3);
    runner.SetSlots(0);
  };
  world.Start();
  world.Settle();
  EXPECT_FALSE(world.listener->finished.has_value());
  world.runner->SetSlots(1);
  world.Settle();
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_EQ(world.output.values(), Expected(3));
}

TEST(JobTest, BoundedFailureEndsTheJobAfterFourAttempts) {
  EngineWorld world(BoundedPlan());
  int failures = 0;
  world.setup = [&failures](FakeRunner& runner) {
    SetBoundedFunctions(runner, 3);
    runner.Set({1}, [&failures](const BundleRequest&) {
      ++failures;
      BundleResult result;
      result.status = Internal("ValueError: bad element");
      return result;
    });
  };
  world.Start();
  world.Settle();
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_THAT(std::string(MessageOf(*world.listener->finished)), HasSubstr("ValueError"));
  EXPECT_EQ(failures, 4);
  EXPECT_TRUE(world.output.values().empty());
}

TEST(JobTest, DeadWorkerIsNoFailure) {
  EngineWorld world(BoundedPlan());
  int lost = 0;
  world.setup = [&lost](FakeRunner& runner) {
    SetBoundedFunctions(runner, 3);
    runner.Set({0}, [&lost](const BundleRequest&) {
      BundleResult result;
      if (++lost <= 10) {
        result.status = Unavailable("the worker is gone");
        return result;
      }
      FakeElement element;
      element.value = "0";
      result.outputs.push_back(MakeChunk({0}, {element}, false));
      return result;
    });
  };
  world.Start();
  world.RunFor(std::chrono::seconds(10));
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_TRUE(world.listener->finished->ok());
  EXPECT_EQ(world.output.values(), Expected(1));
}

TEST(JobTest, CancelEndsTheJob) {
  EngineWorld world(BoundedPlan());
  world.setup = [](FakeRunner& runner) { SetBoundedFunctions(runner, 3); };
  world.Start();
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 1u);
  world.job->Cancel();
  world.Settle();
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_EQ(world.listener->finished->code(), StatusCode::kCancelled);
}

TEST(JobTest, ResumesAfterACrashAtEveryCommit) {
  for (int steps = 0; steps < 60; ++steps) {
    EngineWorld world(BoundedPlan());
    world.setup = [](FakeRunner& runner) { SetBoundedFunctions(runner, 7000); };
    world.Start();
    for (int i = 0; i < steps; ++i) {
      if (!world.executor->RunOne()) world.runner->RunOne();
      if (steps % 7 == 3 && i == steps / 2) world.Checkpoint();
    }
    world.Crash();
    world.Start();
    world.RunFor(std::chrono::seconds(3), std::chrono::milliseconds(100));
    ASSERT_TRUE(world.listener->finished.has_value()) << steps;
    EXPECT_EQ(world.output.values(), Expected(7000)) << steps;
    EXPECT_EQ(world.output.changed, 0u);
    EXPECT_EQ(CountOf(world, "done"), 7000) << steps;
    std::set<uint64_t> attempts(world.runner->attempts.begin(), world.runner->attempts.end());
    EXPECT_EQ(attempts.size(), world.runner->attempts.size());
  }
}

// ---- Source, grouping, sink.

TEST(JobTest, CountsInFixedWindows) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  for (int i = 0; i < 10; ++i)
    world.topic.Publish("id" + std::to_string(i), i % 2 == 0 ? "a" : "b", i * 300);
  world.topic.watermark_limit = 2000;
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(),
              UnorderedElementsAre("a@0=2", "b@0=2", "a@1000=2", "b@1000=1"));
  EXPECT_EQ(world.topic.unacked(), 0u);
  world.job->Drain();
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=2", "b@0=2", "a@1000=2", "b@1000=1",
                                                          "a@2000=1", "b@2000=2"));
  ASSERT_TRUE(world.listener->finished.has_value());
  EXPECT_TRUE(world.listener->finished->ok());
}

TEST(JobTest, UnackedElementsHoldTheWatermark) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  world.topic.watermark_limit = 5000;
  world.topic.Publish("1", "a", 100);
  world.executor->RunAll();
  testing::FakeSource::AnswerAll();
  world.executor->RunAll();
  ASSERT_EQ(world.runner->waiting(), 1u);
  world.topic.Publish("2", "a", 200);
  for (int i = 0; i < 20; ++i) {
    world.clock.Advance(std::chrono::milliseconds(100));
    world.timers->RunDue();
    testing::FakeSource::AnswerAll();
    world.executor->RunAll();
  }
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=2"));
}

TEST(JobTest, LateDataIsDropped) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  world.topic.Publish("1", "a", 100);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=1"));
  world.topic.Publish("2", "a", 200);
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=1"));
  EXPECT_EQ(world.topic.unacked(), 0u);
}

TEST(JobTest, AllowedLatenessGivesALatePane) {
  EngineWorld world(CountingPlan(1000, 10'000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  world.topic.Publish("1", "a", 100);
  world.topic.Publish("2", "a", 110);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(1));
  world.topic.Publish("3", "a", 200);
  world.RunFor(std::chrono::seconds(1));
  world.Crash();
  world.Start();
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=2", "a@0=1"));
  world.topic.watermark_limit = 20'000;
  world.RunFor(std::chrono::seconds(1));
  world.topic.Publish("4", "a", 300);
  world.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=2", "a@0=1"));
}

TEST(JobTest, DuplicatesAreDroppedAndAcked) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  for (int i = 0; i < 3; ++i) world.topic.Publish("same", "a", 100);
  world.RunFor(std::chrono::seconds(1));
  world.topic.Publish("same", "a", 100);
  world.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(world.topic.unacked(), 0u);
  world.Crash();
  world.Start();
  world.clock.Advance(std::chrono::minutes(9));
  world.topic.Publish("same", "a", 100);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(world.topic.unacked(), 0u);
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=1"));
}

TEST(JobTest, IdsOutliveALongDownTimeWhenAcksWereLost) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  world.topic.lose_acks = true;
  world.topic.Publish("1", "a", 100);
  world.RunFor(std::chrono::seconds(1));
  world.Checkpoint();
  world.Settle();
  world.Crash();
  world.clock.Advance(std::chrono::hours(3));
  world.topic.lose_acks = false;
  world.Start();
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(world.topic.unacked(), 0u);
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=1"));
}

TEST(JobTest, SinkRetriesUnderTheSameName) {
  EngineWorld world(CountingPlan(1000));
  world.setup = [](FakeRunner& runner) { SetCountingFunctions(runner, 1000); };
  world.Start();
  world.executor->RunAll();
  world.sink->failures = 2;
  world.topic.Publish("1", "a", 100);
  world.topic.watermark_limit = 5000;
  world.RunFor(std::chrono::seconds(1));
  EXPECT_TRUE(world.output.values().empty());
  EXPECT_THAT(world.listener->messages, ElementsAre(HasSubstr("the topic is gone")));
  world.RunFor(std::chrono::seconds(5));
  EXPECT_THAT(world.output.values(), UnorderedElementsAre("a@0=1"));
}

}  // namespace
}  // namespace millrace::engine
