#include "planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/urns.h"
#include "testing/pipeline_builder.h"

namespace millrace::planner {
namespace {

using engine::InputKind;
using engine::Work;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PipelineBuilder;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

PlannedPipeline Plan(PipelineBuilder& builder) {
  StatusOr<PlannedPipeline> planned = PlanPipeline(builder.pipeline());
  EXPECT_TRUE(planned.ok()) << planned.status();
  return planned.ok() ? *std::move(planned)
                      : PlannedPipeline{.plan = std::make_shared<engine::Plan>()};
}

Status PlanError(PipelineBuilder& builder) { return PlanPipeline(builder.pipeline()).status(); }

// The stage that runs transform `id`.
const engine::StageSpec* StageOf(const PlannedPipeline& planned, const std::string& id) {
  for (const engine::StageSpec& stage : planned.plan->stages) {
    for (const std::string& name : stage.transforms) {
      if (name == "name of " + id) return &stage;
    }
  }
  ADD_FAILURE() << "no stage runs " << id;
  static const engine::StageSpec kNone;
  return &kNone;
}

const ExecutableStage* Executable(const PlannedPipeline& planned, const std::string& transform) {
  for (const ExecutableStage& stage : planned.stages) {
    if (stage.descriptor.transforms().contains(transform)) return &stage;
  }
  ADD_FAILURE() << "no descriptor has " << transform;
  return nullptr;
}

// Collections that a stage reads, by name.
std::vector<std::string> Inputs(const PlannedPipeline& planned, const engine::StageSpec& stage) {
  std::vector<std::string> names;
  for (engine::CollectionId id : stage.inputs)
    names.push_back(planned.plan->collections[id.value].name);
  return names;
}

pipe::ParDoPayload WithSideInput(const std::string& name, const char* access) {
  pipe::ParDoPayload payload;
  (*payload.mutable_side_inputs())[name].mutable_access_pattern()->set_urn(access);
  return payload;
}

// Impulse → make → group → format.
PipelineBuilder Grouping() {
  PipelineBuilder b;
  b.Impulse("impulse", "start")
      .Collection("pairs", "opaque,opaque")
      .ParDo("make", "start", "pairs");
  b.Coder("values", "beam:coder:iterable:v1", {"opaque"});
  b.Collection("grouped", "opaque,values").GroupByKey("group", "pairs", "grouped");
  b.Collection("lines").ParDo("format", "grouped", "lines");
  return b;
}

TEST(PlannerTest, GroupingHasTwoHarnessStages) {
  PipelineBuilder b = Grouping();
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  const engine::StageSpec& make = planned.plan->stages[0];
  const engine::StageSpec& format = planned.plan->stages[1];
  EXPECT_EQ(make.input, InputKind::kImpulse);
  EXPECT_THAT(make.transforms, ElementsAre("name of make"));
  EXPECT_FALSE(make.impulse.empty());
  EXPECT_EQ(format.input, InputKind::kGrouped);
  EXPECT_EQ(format.work, Work::kBundle);
  EXPECT_THAT(format.transforms, ElementsAre("name of group", "name of format"));
  EXPECT_THAT(Inputs(planned, format), ElementsAre("pairs"));
  ASSERT_THAT(planned.plan->collections, SizeIs(1)) << "what nobody reads leaves no stage";
  EXPECT_TRUE(planned.plan->collections[0].keyed);
  EXPECT_FALSE(planned.plan->unbounded);
  EXPECT_THAT(planned.environments, SizeIs(1));
}

TEST(PlannerTest, DescriptorMeetsTheRunnerInCoders) {
  PipelineBuilder b = Grouping();
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.stages, SizeIs(2));
  const ExecutableStage& make = planned.stages[0];
  ASSERT_THAT(make.sinks, SizeIs(1));
  EXPECT_TRUE(make.sinks[0].keyed);
  const coders::Coder& pair = make.sinks[0].windowed_coder->component(0);
  EXPECT_EQ(pair.kind, coders::Coder::Kind::kKv);
  EXPECT_EQ(pair.component(0).kind, coders::Coder::Kind::kLengthPrefix);
  EXPECT_EQ(make.descriptor.transforms().at(make.sinks[0].transform).spec().urn(),
            urns::kRunnerSink);
  // The harness of the consumer must read what the runner wrote: its collection has the same coder.
  const ExecutableStage& format = planned.stages[1];
  EXPECT_EQ(format.descriptor.transforms().at("source").outputs().begin()->second, "grouped");
  const std::string& coder = format.descriptor.pcollections().at("grouped").coder_id();
  const std::string& key = format.descriptor.coders().at(coder).component_coder_ids(0);
  EXPECT_EQ(format.descriptor.coders().at(key).spec().urn(), coders::kLengthPrefixUrn);
}

TEST(PlannerTest, FromPubSubToPubSub) {
  PipelineBuilder b;
  b.Read("read", "messages");
  b.Collection("pairs", "opaque,varint", "minutes", false).ParDo("window", "messages", "pairs");
  b.Coder("values", "beam:coder:iterable:v1", {"varint"});
  b.Collection("grouped", "opaque,values", "minutes", false)
      .GroupByKey("group", "pairs", "grouped");
  b.Collection("lines", "bytes", "minutes", false).ParDo("format", "grouped", "lines");
  pipe::PubSubWritePayload write;
  write.set_topic("projects/p/topics/t");
  b.Transform("write", urns::kPubSubWrite, {{"in", "lines"}}, {}, write.SerializeAsString(), "py");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(3));
  const engine::StageSpec* read = StageOf(planned, "window");
  EXPECT_EQ(read->input, InputKind::kSource);
  EXPECT_EQ(read->native_kind, kPubSubRead);
  EXPECT_EQ(read->work, Work::kBundle) << "the source heads the stage that reads it";
  const engine::StageSpec* format = StageOf(planned, "format");
  EXPECT_EQ(format->input, InputKind::kGrouped);
  EXPECT_EQ(format->strategy.window_fn.kind, windowing::WindowFnKind::kFixed);
  EXPECT_EQ(format->strategy.window_fn.size, 60'000);
  const engine::StageSpec* sink = StageOf(planned, "write");
  EXPECT_EQ(sink->work, Work::kSink);
  EXPECT_EQ(sink->native_kind, kPubSubWrite);
  EXPECT_THAT(Inputs(planned, *sink), ElementsAre("lines"));
  EXPECT_TRUE(planned.plan->unbounded);
}

pipe::DisplayData Label(const std::string& key, const std::string& value) {
  pipe::LabelledPayload payload;
  payload.set_label(key);
  payload.set_key(key);
  payload.set_string_value(value);
  pipe::DisplayData data;
  data.set_payload(payload.SerializeAsString());
  return data;
}

TEST(PlannerTest, PythonsWriteIsKnownByItsDisplayData) {
  PipelineBuilder b;
  b.Read("read", "messages");
  b.Collection("lines", "bytes", "global", false).ParDo("format", "messages", "lines");
  b.ParDo("dofn", "lines", "");
  *b.transform("dofn").add_display_data() =
      Label("fn", "apache_beam.io.gcp.pubsub._PubSubWriteDoFn");
  b.Compose("write", {"dofn"}, "", {{"in", "lines"}}, {});
  *b.transform("write").add_display_data() = Label("topic", "projects/p/topics/t");
  *b.transform("write").add_display_data() = Label("id_label", "id");
  PlannedPipeline planned = Plan(b);
  const engine::StageSpec* sink = StageOf(planned, "dofn");
  EXPECT_EQ(sink->work, Work::kSink);
  pipe::PubSubWritePayload payload;
  ASSERT_TRUE(payload.ParseFromString(sink->native_spec));
  EXPECT_EQ(payload.topic(), "projects/p/topics/t");
  EXPECT_EQ(payload.id_attribute(), "id");
  EXPECT_THAT(planned.stages, SizeIs(1)) << "no harness runs the write";
}

TEST(PlannerTest, FlattenIsReadFromBothProducers) {
  PipelineBuilder b;
  b.Impulse("i1", "s1").Collection("a", "opaque").ParDo("left", "s1", "a");
  b.Impulse("i2", "s2").Collection("b", "opaque").ParDo("right", "s2", "b");
  b.Collection("both", "opaque").Flatten("flatten", {"a", "b"}, "both");
  b.Collection("done").ParDo("use", "both", "done");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(3));
  EXPECT_THAT(Inputs(planned, *StageOf(planned, "use")), UnorderedElementsAre("a", "b"));
}

TEST(PlannerTest, FlattenOfOtherCodersIsWrittenInItsOwn) {
  PipelineBuilder b;
  b.Impulse("i1", "s1").Collection("a", "varint").ParDo("left", "s1", "a");
  b.Collection("both", "opaque").Flatten("flatten", {"a"}, "both");
  b.Collection("done").ParDo("use", "both", "done");
  b.Collection("plain").ParDo("direct", "a", "plain");
  PlannedPipeline planned = Plan(b);
  const ExecutableStage* left = Executable(planned, "left");
  ASSERT_THAT(left->sinks, SizeIs(1)) << "its direct reader is fused";
  EXPECT_EQ(left->sinks[0].windowed_coder->component(0).kind, coders::Coder::Kind::kLengthPrefix);
}

TEST(PlannerTest, FlattenOfNothingAndOfAnImpulse) {
  PipelineBuilder b;
  b.Collection("none").Flatten("empty", {}, "none");
  b.Collection("a").ParDo("use", "none", "a");
  b.Impulse("impulse", "start").Collection("one").Flatten("single", {"start"}, "one");
  b.Collection("c").ParDo("after", "one", "c");
  PlannedPipeline planned = Plan(b);
  EXPECT_THAT(StageOf(planned, "use")->inputs, IsEmpty());
  EXPECT_THAT(Inputs(planned, *StageOf(planned, "after")), ElementsAre("start"));
  EXPECT_EQ(StageOf(planned, "impulse")->work, Work::kPass);
}

TEST(PlannerTest, ReshuffleBreaksFusion) {
  PipelineBuilder b;
  b.Impulse("impulse", "start").Collection("a").ParDo("make", "start", "a");
  b.Collection("b").Transform("shuffle", urns::kReshuffle, {{"in", "a"}}, {{"out", "b"}});
  b.Collection("c").ParDo("use", "b", "c");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  EXPECT_NE(StageOf(planned, "make"), StageOf(planned, "use"));
  EXPECT_THAT(Inputs(planned, *StageOf(planned, "use")), ElementsAre("a"));
}

TEST(PlannerTest, SiblingsOnASourceShareAStage) {
  PipelineBuilder b;
  b.Read("read", "messages");
  b.Collection("a", "bytes", "global", false).ParDo("one", "messages", "a");
  b.Collection("b", "bytes", "global", false).ParDo("two", "messages", "b");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(1)) << "one commit acks both branches";
  EXPECT_THAT(planned.plan->stages[0].transforms,
              ElementsAre("name of read", "name of one", "name of two"));
}

TEST(PlannerTest, ASourceWithAnotherKindOfReaderPassesOn) {
  PipelineBuilder b;
  b.Read("read", "messages");
  b.Collection("a", "bytes", "global", false).ParDo("one", "messages", "a");
  b.Collection("b", "bytes", "global", false).ParDo("other", "messages", "b", {}, "java");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(3));
  EXPECT_EQ(StageOf(planned, "read")->work, Work::kPass);
  EXPECT_EQ(StageOf(planned, "read")->input, InputKind::kSource);
  EXPECT_EQ(StageOf(planned, "one")->inputs, StageOf(planned, "other")->inputs);
  EXPECT_THAT(planned.environments, SizeIs(2));
}

TEST(PlannerTest, SiblingsOnAnImpulseStayApart) {
  PipelineBuilder b;
  b.Impulse("impulse", "start");
  b.Collection("a").ParDo("one", "start", "a");
  b.Collection("b").ParDo("two", "start", "b");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  EXPECT_EQ(planned.plan->stages[0].input, InputKind::kImpulse);
  EXPECT_EQ(planned.plan->stages[1].input, InputKind::kImpulse);
}

TEST(PlannerTest, LiftsCombines) {
  PipelineBuilder b;
  b.Impulse("impulse", "start")
      .Collection("pairs", "opaque,varint")
      .ParDo("make", "start", "pairs");
  b.Collection("sums", "opaque,varint");
  b.GroupByKey("inner", "pairs", "sums");
  pipe::CombinePayload payload;
  payload.set_accumulator_coder_id("varint");
  b.Compose("sum", {"inner"}, urns::kCombinePerKey, {{"in", "pairs"}}, {{"out", "sums"}});
  b.transform("sum").mutable_spec()->set_payload(payload.SerializeAsString());
  b.transform("sum").set_environment_id("py");
  b.Collection("lines").ParDo("format", "sums", "lines");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  EXPECT_THAT(planned.plan->stages[0].transforms,
              ElementsAre("name of make", "name of sum/Precombine"));
  EXPECT_EQ(planned.plan->stages[1].input, InputKind::kGrouped);
  EXPECT_THAT(planned.plan->stages[1].transforms,
              ElementsAre("name of sum/Group", "name of sum/Merge", "name of sum/Extract",
                          "name of format"));
  EXPECT_EQ(planned.original_transforms.at("sum/Precombine"), "sum");
  EXPECT_EQ(planned.unique_names.at("sum"), "name of sum");

  // By a trigger that counts elements the accumulators would be counted: the composite is opened.
  b.components()
      .mutable_windowing_strategies()
      ->at("global")
      .mutable_trigger()
      ->mutable_element_count()
      ->set_element_count(5);
  EXPECT_THAT(Plan(b).original_transforms, IsEmpty());
}

TEST(PlannerTest, ASideInputHeadsItsStage) {
  PipelineBuilder b;
  b.Impulse("i1", "s1").Collection("a", "opaque").ParDo("make", "s1", "a");
  b.Impulse("i2", "s2").Collection("b", "opaque,opaque").ParDo("side", "s2", "b");
  b.Collection("c");
  b.ParDo("use", "a", "c", WithSideInput("looked_up", urns::kMultimapSideInput));
  (*b.transform("use").mutable_inputs())["looked_up"] = "b";
  b.Collection("d").ParDo("after", "c", "d");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(3));
  const engine::StageSpec* use = StageOf(planned, "use");
  EXPECT_EQ(use, StageOf(planned, "after"));
  EXPECT_THAT(Inputs(planned, *use), ElementsAre("a"));
  ASSERT_THAT(use->side_inputs, SizeIs(1));
  EXPECT_EQ(use->side_inputs[0].transform, "use");
  EXPECT_EQ(use->side_inputs[0].name, "looked_up");
  EXPECT_TRUE(use->side_inputs[0].multimap);
  const engine::CollectionSpec& side =
      planned.plan->collections[use->side_inputs[0].collection.value];
  EXPECT_EQ(side.name, "b");
  EXPECT_TRUE(side.keyed);
  EXPECT_TRUE(Executable(planned, "use")->uses_state);
  EXPECT_FALSE(Executable(planned, "make")->uses_state);
}

TEST(PlannerTest, ASideInputFromAFlattenIsOneCollection) {
  PipelineBuilder b;
  b.Impulse("i1", "s1").Collection("a").ParDo("left", "s1", "a");
  b.Impulse("i2", "s2").Collection("b").ParDo("right", "s2", "b");
  b.Collection("both").Flatten("flatten", {"a", "b"}, "both");
  b.Impulse("i3", "s3").Collection("main").ParDo("make", "s3", "main").Collection("c");
  b.ParDo("use", "main", "c", WithSideInput("side", urns::kIterableSideInput));
  (*b.transform("use").mutable_inputs())["side"] = "both";
  PlannedPipeline planned = Plan(b);
  const engine::StageSpec* flatten = StageOf(planned, "flatten");
  EXPECT_EQ(flatten->work, Work::kPass);
  EXPECT_THAT(Inputs(planned, *flatten), UnorderedElementsAre("a", "b"));
  const engine::StageSpec* use = StageOf(planned, "use");
  ASSERT_THAT(use->side_inputs, SizeIs(1));
  EXPECT_THAT(flatten->outputs, ElementsAre(use->side_inputs[0].collection));
}

TEST(PlannerTest, StateHeadsAStageByKey) {
  PipelineBuilder b;
  b.Impulse("impulse", "start")
      .Collection("pairs", "opaque,varint")
      .ParDo("make", "start", "pairs");
  b.Coder("timer", "beam:coder:timer:v1", {"opaque", "global_window"});
  pipe::ParDoPayload payload;
  (*payload.mutable_state_specs())["sum"].mutable_bag_spec()->set_element_coder_id("varint");
  pipe::TimerFamilySpec& family = (*payload.mutable_timer_family_specs())["wake"];
  family.set_time_domain(pipe::TimeDomain::PROCESSING_TIME);
  family.set_timer_family_coder_id("timer");
  b.Collection("out").ParDo("stateful", "pairs", "out", payload);
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  const engine::StageSpec* stage = StageOf(planned, "stateful");
  EXPECT_TRUE(stage->keyed);
  ASSERT_THAT(stage->timers, SizeIs(1));
  EXPECT_EQ(stage->timers[0].family, "wake");
  EXPECT_FALSE(stage->timers[0].event_time);
  const ExecutableStage* executable = Executable(planned, "stateful");
  ASSERT_THAT(executable->timers, SizeIs(1));
  EXPECT_EQ(executable->timers[0].coder->component(0).kind, coders::Coder::Kind::kLengthPrefix)
      << "the runner cuts keys out of timers";
}

TEST(PlannerTest, SplittableDoFnsAreExpanded) {
  PipelineBuilder b;
  b.Impulse("impulse", "start").Collection("out");
  pipe::ParDoPayload payload;
  payload.set_restriction_coder_id("opaque");
  b.ParDo("read", "start", "out", payload);
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(2));
  EXPECT_THAT(planned.plan->stages[0].transforms,
              ElementsAre("name of read/PairWithRestriction", "name of read/SplitAndSize"));
  EXPECT_THAT(planned.plan->stages[1].transforms, ElementsAre("name of read/ProcessSized"));
  EXPECT_EQ(planned.original_transforms.at("read/ProcessSized"), "read");
  EXPECT_FALSE(planned.plan->unbounded);
  b.components().mutable_pcollections()->at("out").set_is_bounded(pipe::IsBounded::UNBOUNDED);
  EXPECT_TRUE(Plan(b).plan->unbounded);
}

TEST(PlannerTest, IdentityCompositesVanish) {
  PipelineBuilder b;
  b.Impulse("impulse", "start").Collection("a").ParDo("make", "start", "a");
  b.Transform("nothing", "", {{"in", "a"}}, {{"out", "a"}});
  b.Transform("empty", "some:urn", {{"in", "a"}}, {});
  b.Collection("b").ParDo("use", "a", "b");
  PlannedPipeline planned = Plan(b);
  ASSERT_THAT(planned.plan->stages, SizeIs(1));
  EXPECT_THAT(planned.plan->stages[0].transforms, ElementsAre("name of make", "name of use"));
}

TEST(PlannerTest, AParDoWithoutOutputsIsRun) {
  PipelineBuilder b;
  b.Impulse("impulse", "start").ParDo("check", "start", "");
  PlannedPipeline planned = Plan(b);
  EXPECT_EQ(StageOf(planned, "check")->work, Work::kBundle);
}

TEST(PlannerTest, ReadsAreRunByTheirExpansion) {
  PipelineBuilder b;
  b.Impulse("impulse", "start").Collection("out").ParDo("inner", "start", "out");
  b.Compose("read", {"impulse", "inner"}, urns::kRead, {}, {{"out", "out"}});
  PlannedPipeline planned = Plan(b);
  EXPECT_EQ(StageOf(planned, "inner")->work, Work::kBundle);
  b.transform("read").clear_subtransforms();
  EXPECT_THAT(std::string(MessageOf(PlanError(b))), HasSubstr("use_deprecated_read"));
}

TEST(PlannerTest, RefusesWhatItDoesNotKnow) {
  PipelineBuilder requirement = Grouping();
  requirement.pipeline().add_requirements("beam:requirement:of:the:future");
  EXPECT_EQ(PlanError(requirement).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(MessageOf(PlanError(requirement))),
              HasSubstr("beam:requirement:of:the:future"));

  PipelineBuilder no_environment = Grouping();
  no_environment.transform("make").clear_environment_id();
  no_environment.transform("make").mutable_spec()->set_urn("beam:transform:of:the:future");
  EXPECT_THAT(std::string(MessageOf(PlanError(no_environment))),
              HasSubstr("beam:transform:of:the:future"));

  PipelineBuilder side = Grouping();
  side.ParDo("use", "lines", "", WithSideInput("s", "some:access"));
  (*side.transform("use").mutable_inputs())["s"] = "lines";
  EXPECT_EQ(PlanError(side).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(MessageOf(PlanError(side))), HasSubstr("some:access"));
}

TEST(PlannerTest, RefusesBrokenPipelines) {
  PipelineBuilder collection = Grouping();
  collection.components().mutable_pcollections()->erase("pairs");
  EXPECT_EQ(PlanError(collection).code(), StatusCode::kInvalidArgument);

  PipelineBuilder coder = Grouping();
  coder.components().mutable_coders()->erase("opaque");
  EXPECT_THAT(std::string(MessageOf(PlanError(coder))), HasSubstr("opaque"));

  PipelineBuilder unmade = Grouping();
  unmade.Collection("orphan").ParDo("use", "orphan", "");
  EXPECT_THAT(std::string(MessageOf(PlanError(unmade))), HasSubstr("nothing produces"));

  PipelineBuilder root = Grouping();
  root.pipeline().add_root_transform_ids("nobody");
  EXPECT_THAT(std::string(MessageOf(PlanError(root))), HasSubstr("nobody"));
}

TEST(PlannerTest, RefusesCycles) {
  PipelineBuilder b;
  b.Collection("a").Collection("b");
  b.ParDo("one", "b", "a").ParDo("two", "a", "b");
  EXPECT_EQ(PlanError(b).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(PlanError(b))), HasSubstr("cycle"));

  PipelineBuilder inside;  // a composite that holds itself
  inside.Transform("outer", "", {}, {}).add_subtransforms("outer");
  EXPECT_EQ(PlanError(inside).code(), StatusCode::kInvalidArgument);
}

// Proto maps have no order: the plan must not depend on theirs, or a restarted job finds no state.
TEST(PlannerTest, TheSamePipelineGivesTheSamePlan) {
  PipelineBuilder b = Grouping();
  for (int i = 0; i < 20; ++i) {
    std::string n = std::to_string(i);
    b.Collection("x" + n, "opaque,opaque").ParDo("side " + n, "lines", "x" + n);
    b.Collection("y" + n, "opaque,values").GroupByKey("group " + n, "x" + n, "y" + n);
    b.Collection("z" + n).ParDo("use " + n, "y" + n, "z" + n,
                                WithSideInput("s", urns::kIterableSideInput));
    (*b.transform("use " + n).mutable_inputs())["s"] = "lines";
  }
  PlannedPipeline first = Plan(b);
  for (int round = 0; round < 5; ++round) {
    pipe::Pipeline copy;
    copy.ParseFromString(b.pipeline().SerializeAsString());
    StatusOr<PlannedPipeline> again = PlanPipeline(copy);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->plan->stages.size(), first.plan->stages.size());
    for (size_t i = 0; i < first.plan->stages.size(); ++i) {
      const engine::StageSpec& was = first.plan->stages[i];
      const engine::StageSpec& is = again->plan->stages[i];
      EXPECT_EQ(is.transforms, was.transforms);
      EXPECT_EQ(is.inputs, was.inputs);
      EXPECT_EQ(is.outputs, was.outputs);
    }
    for (size_t i = 0; i < first.plan->collections.size(); ++i)
      EXPECT_EQ(again->plan->collections[i].name, first.plan->collections[i].name);
  }
}

}  // namespace
}  // namespace millrace::planner
