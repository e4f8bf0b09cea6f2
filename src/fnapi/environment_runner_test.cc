#include "fnapi/environment_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/fake_clock.h"
#include "testing/manual_timers.h"
#include "testing/sdk_worker.h"
#include "testing/stage_programs.h"

namespace millrace::fnapi {
namespace {

using engine::BundleResult;
using testing::EncodedPair;
using testing::FakeClock;
using testing::FnPort;
using ::testing::HasSubstr;
using testing::Inbox;
using testing::KeyedProgram;
using testing::ManualTimers;
using testing::ScriptedPool;
using testing::SdkWorker;
using ::testing::StartsWith;

// The pool's and the runner's gRPC threads are real; time is the test's.
class EnvironmentRunnerTest : public ::testing::Test {
 protected:
  void Begin(int workers = 1) {
    EnvironmentOptions options;
    options.pool_url = pool_.url;
    options.params = {{"a", "b"}};
    options.worker_id_prefix = "job-boot-0";
    options.workers = workers;
    options.endpoint = port_.url;
    runner_ = EnvironmentRunner::Make(
        std::move(options),
        {.unreachable = [this](Duration trouble, Status why) { unreachable_.Put({trouble, why}); },
         .log = {}},
        {&port_.server, &clock_, &timers_, &executor_}, {KeyedProgram()});
    runner_->OnSlotsChanged([this] { changed_.Put(runner_->Slots()); });
    runner_->Start();
  }
  void TearDown() override {
    if (runner_) runner_->Stop();
  }

  std::unique_ptr<SdkWorker> Connect() {
    const auto request = pool_.started.Take();
    EXPECT_TRUE(request);
    auto worker = std::make_unique<SdkWorker>(port_.url, request->worker_id());
    EXPECT_TRUE(changed_.Take());
    return worker;
  }
  // Until the next try is planned, which happens just after the trouble was told. Only then may
  // time move: the try is so far from now.
  void WaitForRetry() {
    while (!timers_.Next() || *timers_.Next() > clock_.SteadyNow() + std::chrono::seconds(5))
      std::this_thread::yield();
  }
  void Run(uint64_t attempt) {
    engine::BundleRequest request;
    request.attempt = attempt;
    request.stage = engine::StageId{3};
    runner_->Run(std::move(request),
                 [this](BundleResult result) { results_.Put(std::move(result)); });
  }

  FakeClock clock_;
  ManualTimers timers_{clock_};
  ThreadPool executor_{1, "test"};
  // Before the servers, whose threads still call back while they end.
  Inbox<std::pair<Duration, Status>> unreachable_;
  Inbox<int> changed_;
  Inbox<BundleResult> results_;
  std::shared_ptr<EnvironmentRunner> runner_;
  FnPort port_;
  ScriptedPool pool_;
};

TEST_F(EnvironmentRunnerTest, AsksThePoolAndRunsBundles) {
  Begin();
  const auto request = pool_.started.Take();
  ASSERT_TRUE(request);
  EXPECT_THAT(request->worker_id(), StartsWith("job-boot-0-"));
  EXPECT_EQ(request->control_endpoint().url(), port_.url);
  EXPECT_EQ(request->logging_endpoint().url(), port_.url);
  EXPECT_EQ(request->params().at("a"), "b");
  EXPECT_EQ(runner_->Slots(), 0);
  SdkWorker worker(port_.url, request->worker_id());
  EXPECT_EQ(changed_.Take(), 3);
  Run(1);
  const auto instruction = worker.control.Receive();
  ASSERT_TRUE(instruction);
  worker.Succeed(instruction->instruction_id(), EncodedPair("k", "v"));
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->status.ok()) << result->status;
  runner_->Stop();
  EXPECT_EQ(pool_.stopped.Take(), request->worker_id());
  while (worker.control.Receive()) continue;
}

TEST_F(EnvironmentRunnerTest, WithoutWorkersBundlesAreUnavailable) {
  Begin();
  Run(1);
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code(), StatusCode::kUnavailable);
}

TEST_F(EnvironmentRunnerTest, SpreadsBundlesOverWorkers) {
  Begin(2);
  auto one = Connect();
  auto two = Connect();
  EXPECT_EQ(runner_->Slots(), 6);
  Run(1);
  Run(2);
  EXPECT_TRUE(one->control.Receive());
  EXPECT_TRUE(two->control.Receive());
}

TEST_F(EnvironmentRunnerTest, ReplacesALostWorkerUnderANewId) {
  Begin();
  const auto first = pool_.started.Take();
  auto worker = std::make_unique<SdkWorker>(port_.url, first->worker_id());
  EXPECT_EQ(changed_.Take(), 3);
  Run(1);
  worker->control.Receive();
  worker->control.Break();
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(changed_.Take(), 0);
  ASSERT_TRUE(unreachable_.Take());
  EXPECT_EQ(pool_.stopped.Take(), first->worker_id());
  EXPECT_EQ(pool_.started.size(), 0) << "not at once: there is a back-off";
  WaitForRetry();
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(timers_.RunDue(), 1);
  const auto second = pool_.started.Take();
  ASSERT_TRUE(second);
  EXPECT_NE(second->worker_id(), first->worker_id());
}

TEST_F(EnvironmentRunnerTest, TellsHowLongItHasBeenInTrouble) {
  pool_.refuse = [](const fn::StartWorkerRequest&) { return "no room"; };
  Begin();
  auto trouble = unreachable_.Take();
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->first, Duration::zero());
  EXPECT_THAT(std::string(MessageOf(trouble->second)), HasSubstr("no room"));
  WaitForRetry();
  clock_.Advance(std::chrono::seconds(31));
  EXPECT_EQ(timers_.RunDue(), 1);
  trouble = unreachable_.Take();
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->first, std::chrono::seconds(31));
}

TEST_F(EnvironmentRunnerTest, APoolThatIsGoneIsTrouble) {
  pool_.Shutdown();
  Begin();
  const auto trouble = unreachable_.Take();
  ASSERT_TRUE(trouble);
  EXPECT_THAT(std::string(MessageOf(trouble->second)), HasSubstr(pool_.url));
}

TEST_F(EnvironmentRunnerTest, AWorkerThatNeverConnectsIsLost) {
  Begin();
  const auto first = pool_.started.Take();
  ASSERT_TRUE(first);
  while (!timers_.Next()) std::this_thread::yield();  // its answer is on the way
  clock_.Advance(std::chrono::seconds(61));
  timers_.RunDue();
  const auto trouble = unreachable_.Take();
  ASSERT_TRUE(trouble);
  EXPECT_THAT(std::string(MessageOf(trouble->second)), HasSubstr("has not connected"));
}

TEST_F(EnvironmentRunnerTest, FinalizesInTheWorkerThatRanIt) {
  Begin();
  auto worker = Connect();
  Run(1);
  worker->control.Receive();
  fn::InstructionResponse answer;
  answer.set_instruction_id("bundle-1");
  answer.mutable_process_bundle()->set_requires_finalization(true);
  worker->Succeed("bundle-0", "");  // ends of another bundle: ignored
  fn::Elements ends;
  auto* data = ends.add_data();
  data->set_instruction_id("bundle-1");
  data->set_transform_id("sink-0");
  data->set_is_last(true);
  auto* timers = ends.add_timers();
  timers->set_instruction_id("bundle-1");
  timers->set_transform_id("work");
  timers->set_timer_family_id("wake");
  timers->set_is_last(true);
  worker->data.Send(ends);
  worker->control.Send(answer);
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->wants_finalization);
  runner_->Finalize(1);
  runner_->Finalize(1);  // once
  runner_->Finalize(2);  // not its own
  Run(3);
  auto instruction = worker->control.Receive();
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->finalize_bundle().instruction_id(), "bundle-1");
  instruction = worker->control.Receive();
  ASSERT_TRUE(instruction);
  EXPECT_TRUE(instruction->has_process_bundle());
}

TEST_F(EnvironmentRunnerTest, StopAnswersWhatIsInFlight) {
  Begin();
  auto worker = Connect();
  Run(1);
  worker->control.Receive();
  runner_->Stop();
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code(), StatusCode::kCancelled);
  EXPECT_EQ(unreachable_.size(), 0);
}

}  // namespace
}  // namespace millrace::fnapi
