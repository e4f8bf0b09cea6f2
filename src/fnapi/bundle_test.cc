#include "fnapi/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/stage_programs.h"
#include "windowing/wire.h"

namespace millrace::fnapi {
namespace {

using engine::BundleResult;
using ::testing::ElementsAre;
using testing::EncodedPair;
using testing::EncodedTimer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KeyedProgram;
using ::testing::SizeIs;

class BundleTest : public ::testing::Test {
 protected:
  std::unique_ptr<Bundle> Make(engine::BundleRequest request = {}) {
    request.attempt = 7;
    return std::make_unique<Bundle>(KeyedProgram(), std::move(request),
                                    [this](BundleResult result) {
                                      ++answers_;
                                      result_ = std::move(result);
                                    });
  }
  static void Data(Bundle& bundle, const std::string& bytes, bool last,
                   const std::string& transform = "sink-0") {
    fn::Elements::Data data;
    data.set_transform_id(transform);
    data.set_data(bytes);
    data.set_is_last(last);
    bundle.OnData(data);
  }
  static void Timers(Bundle& bundle, const std::string& bytes, bool last,
                     const std::string& family = "wake") {
    fn::Elements::Timers timers;
    timers.set_transform_id("work");
    timers.set_timer_family_id(family);
    timers.set_timers(bytes);
    timers.set_is_last(last);
    bundle.OnTimers(timers);
  }
  static void Respond(Bundle& bundle, fn::ProcessBundleResponse response = {}) {
    fn::InstructionResponse answer;
    *answer.mutable_process_bundle() = std::move(response);
    bundle.OnResponse(answer);
  }

  BundleResult result_;
  int answers_ = 0;
};

TEST_F(BundleTest, InstructionNamesDescriptorAndToken) {
  engine::BundleRequest request;
  request.cache_token = "token";
  const fn::InstructionRequest instruction = Make(std::move(request))->MakeInstruction();
  EXPECT_EQ(instruction.instruction_id(), "bundle-7");
  EXPECT_EQ(instruction.process_bundle().process_bundle_descriptor_id(), "stage-3");
  ASSERT_THAT(instruction.process_bundle().cache_tokens(), SizeIs(1));
  EXPECT_EQ(instruction.process_bundle().cache_tokens(0).token(), "token");
}

TEST_F(BundleTest, FramesCarryInputTimersAndTheirEnds) {
  engine::BundleRequest request;
  request.data = {SharedBytes("one"), SharedBytes(""), SharedBytes("two")};
  engine::Timer timer;
  timer.transform = "work";
  timer.family = "wake";
  timer.key = "\x01k";
  timer.fire = timer.hold = 17;
  request.timers.push_back(timer);
  const std::vector<fn::Elements> frames = Make(std::move(request))->MakeFrames();
  ASSERT_THAT(frames, SizeIs(3)) << "an empty piece is none";
  EXPECT_EQ(frames[0].data(0).data(), "one");
  EXPECT_EQ(frames[1].data(0).data(), "two");
  EXPECT_EQ(frames[0].data(0).transform_id(), "source");
  const fn::Elements& last = frames[2];
  ASSERT_THAT(last.data(), SizeIs(1));
  EXPECT_TRUE(last.data(0).is_last());
  ASSERT_THAT(last.timers(), SizeIs(2)) << "the timer, and the end of its family";
  EXPECT_FALSE(last.timers(0).timers().empty());
  EXPECT_TRUE(last.timers(1).is_last());
  for (const fn::Elements& frame : frames)
    for (const auto& data : frame.data()) EXPECT_EQ(data.instruction_id(), "bundle-7");
}

TEST_F(BundleTest, IsCompleteWhenAllEndsHaveCome) {
  auto bundle = Make();
  Data(*bundle, EncodedPair("k1", "v1") + EncodedPair("k2", "v2"), false);
  Respond(*bundle);
  EXPECT_FALSE(bundle->complete());
  Data(*bundle, EncodedPair("k3", "v3"), true);
  EXPECT_FALSE(bundle->complete());
  Timers(*bundle, EncodedTimer("k1", "tag", 5), true);
  ASSERT_TRUE(bundle->complete());
  bundle->Finish();
  ASSERT_TRUE(result_.status.ok());
  ASSERT_THAT(result_.outputs, SizeIs(2));
  ASSERT_THAT(result_.outputs[0].elements, SizeIs(2));
  EXPECT_EQ(result_.outputs[0].collection, engine::CollectionId{9});
  EXPECT_EQ(result_.outputs[0].elements[1].key, "\x02k2");
  EXPECT_EQ(result_.outputs[0].elements[1].kv_value, "\x02v2");
  EXPECT_EQ(result_.outputs[0].elements[1].encoded, EncodedPair("k2", "v2"));
  EXPECT_EQ(result_.outputs[1].elements[0].key, "\x02k3");
  ASSERT_THAT(result_.timers, SizeIs(1));
  EXPECT_EQ(result_.timers[0].family, "wake");
  EXPECT_EQ(result_.timers[0].key, "\x02k1");
  EXPECT_EQ(result_.timers[0].tag, "tag");
  EXPECT_EQ(result_.timers[0].fire, 5);
  EXPECT_EQ(answers_, 1);
}

TEST_F(BundleTest, ResponseMayCarryTheData) {
  auto bundle = Make();
  fn::ProcessBundleResponse response;
  auto* data = response.mutable_elements()->add_data();
  data->set_transform_id("sink-0");
  data->set_data(EncodedPair("k", "v"));
  data->set_is_last(true);
  auto* timers = response.mutable_elements()->add_timers();
  timers->set_transform_id("work");
  timers->set_timer_family_id("wake");
  timers->set_is_last(true);
  Respond(*bundle, std::move(response));
  ASSERT_TRUE(bundle->complete());
  bundle->Finish();
  ASSERT_THAT(result_.outputs, SizeIs(1));
  EXPECT_EQ(result_.outputs[0].elements[0].key, "\x01k");
}

TEST_F(BundleTest, ResponseTellsMetricsResidualsAndFinalization) {
  auto bundle = Make();
  Data(*bundle, "", true);
  Timers(*bundle, "", true);
  fn::ProcessBundleResponse response;
  response.set_requires_finalization(true);
  pipe::MonitoringInfo* info = response.add_monitoring_infos();
  info->set_urn("urn");
  info->set_type("type");
  info->set_payload("\x05");
  (*info->mutable_labels())["PTRANSFORM"] = "work";
  fn::DelayedBundleApplication* rest = response.add_residual_roots();
  rest->mutable_application()->set_transform_id("work");
  rest->mutable_application()->set_input_id("in");
  rest->mutable_application()->set_element("rest");
  (*rest->mutable_application()->mutable_output_watermarks())["out"].set_seconds(3);
  rest->mutable_requested_time_delay()->set_seconds(2);
  rest->mutable_requested_time_delay()->set_nanos(500'000'000);
  Respond(*bundle, std::move(response));
  bundle->Finish();
  EXPECT_THAT(result_.outputs, IsEmpty());
  EXPECT_TRUE(result_.wants_finalization);
  ASSERT_THAT(result_.metrics, SizeIs(1));
  EXPECT_EQ(result_.metrics[0].labels.at("PTRANSFORM"), "work");
  ASSERT_THAT(result_.residuals, SizeIs(1));
  EXPECT_EQ(result_.residuals[0].element, "rest");
  EXPECT_EQ(result_.residuals[0].delay, std::chrono::milliseconds(2500));
  EXPECT_EQ(result_.residuals[0].output_watermarks.at("out"), 3000);
}

TEST_F(BundleTest, AnErrorEndsItAtOnceAndIsCut) {
  auto bundle = Make();
  Data(*bundle, EncodedPair("k", "v"), false);
  fn::InstructionResponse answer;
  answer.set_error("ValueError: " + std::string(1 << 20, 'x'));
  bundle->OnResponse(answer);
  ASSERT_TRUE(bundle->complete()) << "nobody waits for the rest of the data";
  bundle->Finish();
  EXPECT_EQ(result_.status.code(), StatusCode::kUnknown);
  EXPECT_THAT(std::string(MessageOf(result_.status)), HasSubstr("ValueError"));
  EXPECT_LT(result_.status.message().size(), 20'000);
  bundle->Fail(Unavailable("late"));
  EXPECT_EQ(answers_, 1);
}

TEST_F(BundleTest, MalformedFramesFailIt) {
  const std::string good = EncodedPair("k", "v");
  for (const std::string& frame :
       {good.substr(0, good.size() - 1), std::string("junk"), good + std::string(1, '\x80')}) {
    auto bundle = Make();
    Data(*bundle, frame, true);
    Timers(*bundle, "", true);
    Respond(*bundle);
    ASSERT_TRUE(bundle->complete());
    bundle->Finish();
    EXPECT_EQ(result_.status.code(), StatusCode::kDataLoss) << result_.status;
  }
}

TEST_F(BundleTest, UnknownSinksAndFamiliesFailIt) {
  auto sink = Make();
  Data(*sink, EncodedPair("k", "v"), true, "sink-8");
  Data(*sink, "", true);
  Timers(*sink, "", true);
  Respond(*sink);
  sink->Finish();
  EXPECT_THAT(std::string(MessageOf(result_.status)), HasSubstr("sink-8"));

  auto family = Make();
  Timers(*family, EncodedTimer("k", "", 1), false, "strange");
  ASSERT_TRUE(family->complete());
  family->Finish();
  EXPECT_THAT(std::string(MessageOf(result_.status)), HasSubstr("strange"));

  auto timer = Make();
  Data(*timer, "", true);
  const std::string cut = EncodedTimer("k", "tag", 1);
  Timers(*timer, cut.substr(0, cut.size() - 3), true);
  Respond(*timer);
  timer->Finish();
  EXPECT_EQ(result_.status.code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace millrace::fnapi
