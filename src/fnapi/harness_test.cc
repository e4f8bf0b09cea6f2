#include "fnapi/harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sdk_worker.h"
#include "testing/stage_programs.h"

namespace millrace::fnapi {
namespace {

using engine::BundleResult;
using testing::EncodedPair;
using testing::FnPort;
using ::testing::HasSubstr;
using testing::Inbox;
using testing::KeyedProgram;
using testing::SdkWorker;
using ::testing::SizeIs;

// Answers every get with its key, in two pages.
class EchoState : public engine::BundleState {
 public:
  void Get(engine::StateKey key, std::string continuation,
           Callback<void(StatusOr<engine::StatePage>)> done) override {
    if (key.key == "bad") return done(InvalidArgument("a bad key"));
    if (continuation.empty()) return done(engine::StatePage{key.key, "more"});
    done(engine::StatePage{"/" + continuation, ""});
  }
  void Append(engine::StateKey key, std::string data, Callback<void(Status)> done) override {
    appended += data;
    done(OkStatus());
  }
  void Clear(engine::StateKey key, Callback<void(Status)> done) override {
    cleared = true;
    done(OkStatus());
  }
  std::string appended;
  bool cleared = false;
};

class HarnessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    (*programs_)["stage-3"] = KeyedProgram();
    harness_ =
        std::make_shared<Harness>("worker-1", programs_,
                                  Harness::Listener{.connected = [this] { connected_.Put(true); },
                                                    .lost = [this] { lost_.Put(true); },
                                                    .log = {}});
    fn::ProvisionInfo info;
    info.set_retrieval_token("job-1");
    port_.server.Add(harness_, info);
  }
  void TearDown() override { harness_->Close(Cancelled("the test ends")); }

  std::unique_ptr<SdkWorker> Connect() {
    auto worker = std::make_unique<SdkWorker>(port_.url, "worker-1");
    EXPECT_TRUE(connected_.Take());
    return worker;
  }
  void Run(uint64_t attempt, const std::string& input,
           std::shared_ptr<engine::BundleState> state = nullptr) {
    engine::BundleRequest request;
    request.attempt = attempt;
    request.data.emplace_back(input);
    request.state = std::move(state);
    harness_->Run(KeyedProgram(), std::move(request),
                  [this](BundleResult result) { results_.Put(std::move(result)); });
  }

  FnPort port_;
  std::shared_ptr<Programs> programs_ = std::make_shared<Programs>();
  Inbox<bool> connected_, lost_;
  Inbox<BundleResult> results_;
  std::shared_ptr<Harness> harness_;
};

TEST_F(HarnessTest, RunsABundle) {
  auto worker = Connect();
  Run(1, EncodedPair("k", "in"));
  const auto instruction = worker->control.Receive();
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->instruction_id(), "bundle-1");
  EXPECT_EQ(worker->ReceiveInput(), EncodedPair("k", "in"));
  worker->Succeed("bundle-1", EncodedPair("k", "out"));
  const auto result = results_.Take();
  ASSERT_TRUE(result && result->status.ok()) << result->status;
  ASSERT_THAT(result->outputs, SizeIs(1));
  EXPECT_EQ(result->outputs[0].elements[0].kv_value, "\x03out");
}

TEST_F(HarnessTest, ErrorsKeepTheText) {
  auto worker = Connect();
  Run(1, "");
  worker->control.Receive();
  worker->FailWith("bundle-1", "Traceback: ValueError: 17");
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_THAT(std::string(MessageOf(result->status)), HasSubstr("ValueError: 17"));
}

TEST_F(HarnessTest, ALostControlStreamFailsWhatIsInFlight) {
  auto worker = Connect();
  Run(1, "");
  Run(2, "");
  worker->control.Receive();
  worker->control.Break();
  for (int i = 0; i < 2; ++i) {
    const auto result = results_.Take();
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status.code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(lost_.Take());
  Run(3, "");
  const auto after = results_.Take();
  ASSERT_TRUE(after);
  EXPECT_EQ(after->status.code(), StatusCode::kUnavailable);
}

TEST_F(HarnessTest, LateAnswersAreIgnored) {
  auto worker = Connect();
  Run(1, "");
  worker->control.Receive();
  worker->FailWith("bundle-1", "first");
  ASSERT_TRUE(results_.Take());
  worker->Succeed("bundle-1", EncodedPair("k", "late"));
  worker->FailWith("bundle-77", "never asked");
  Run(2, "");
  worker->control.Receive();
  worker->Succeed("bundle-2", EncodedPair("k", "good"));
  const auto result = results_.Take();
  ASSERT_TRUE(result && result->status.ok());
  ASSERT_THAT(result->outputs, SizeIs(1));
  EXPECT_EQ(result->outputs[0].elements[0].kv_value, "\x04good");
  EXPECT_EQ(results_.size(), 0);
}

TEST_F(HarnessTest, CloseCancelsWithoutALoss) {
  auto worker = Connect();
  Run(1, "");
  harness_->Close(Cancelled("the job has ended"));
  const auto result = results_.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code(), StatusCode::kCancelled);
  while (worker->control.Receive()) continue;
  worker.reset();
  EXPECT_EQ(lost_.size(), 0);
}

TEST_F(HarnessTest, FinalizeNamesTheBundle) {
  auto worker = Connect();
  harness_->Finalize(9);
  const auto instruction = worker->control.Receive();
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->finalize_bundle().instruction_id(), "bundle-9");
}

TEST_F(HarnessTest, ServesStateOfRunningBundles) {
  auto worker = Connect();
  auto state = std::make_shared<EchoState>();
  Run(1, "", state);
  fn::StateRequest request;
  request.set_id("r1");
  request.set_instruction_id("bundle-1");
  request.mutable_state_key()->mutable_bag_user_state()->set_key("k1");
  request.mutable_get();
  worker->state.Send(request);
  auto answer = worker->state.Receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->id(), "r1");
  EXPECT_EQ(answer->get().data(), "k1");
  request.mutable_get()->set_continuation_token(answer->get().continuation_token());
  worker->state.Send(request);
  answer = worker->state.Receive();
  EXPECT_EQ(answer->get().data(), "/more");
  EXPECT_EQ(answer->get().continuation_token(), "");

  request.mutable_state_key()->mutable_bag_user_state()->set_key("bad");
  request.mutable_get()->clear_continuation_token();
  worker->state.Send(request);
  EXPECT_EQ(worker->state.Receive()->error(), "a bad key");

  request.mutable_append()->set_data("more");
  worker->state.Send(request);
  EXPECT_EQ(worker->state.Receive()->error(), "");
  EXPECT_EQ(state->appended, "more");
  request.mutable_clear();
  worker->state.Send(request);
  EXPECT_EQ(worker->state.Receive()->error(), "");
  EXPECT_TRUE(state->cleared);

  request.set_instruction_id("bundle-2");
  worker->state.Send(request);
  EXPECT_THAT(worker->state.Receive()->error(), HasSubstr("bundle-2 is not running"));
}

TEST_F(HarnessTest, UnknownWorkersAreToldSo) {
  SdkWorker stranger(port_.url, "worker-2");
  EXPECT_FALSE(stranger.control.Receive());
  const grpc::Status status = stranger.control.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("worker-2"));
  EXPECT_EQ(stranger.data.End().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(stranger.state.End().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HarnessTest, ServesDescriptorsAndProvision) {
  auto worker = Connect();
  fn::GetProvisionInfoResponse provision;
  EXPECT_TRUE(worker
                  ->Unary([&](grpc::ClientContext* context) {
                    return worker->provision().GetProvisionInfo(context, {}, &provision);
                  })
                  .ok());
  EXPECT_EQ(provision.info().retrieval_token(), "job-1");
  fn::GetProcessBundleDescriptorRequest request;
  request.set_process_bundle_descriptor_id("stage-3");
  fn::ProcessBundleDescriptor descriptor;
  const auto get = [&](grpc::ClientContext* context) {
    return worker->descriptors().GetProcessBundleDescriptor(context, request, &descriptor);
  };
  EXPECT_TRUE(worker->Unary(get).ok());
  EXPECT_EQ(descriptor.id(), "stage-3");
  request.set_process_bundle_descriptor_id("stage-4");
  EXPECT_EQ(worker->Unary(get).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace millrace::fnapi
