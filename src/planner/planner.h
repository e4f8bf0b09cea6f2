// From a Beam pipeline to what runs: checked graph → expanded (native sources and sinks, lifted
// combines, splittable DoFns) → fused stages → engine::Plan, with a ProcessBundleDescriptor for
// each stage that an SDK harness runs.
//
// Deterministic: the same pipeline gives the same stage and collection ids, so a restarted job
// finds its state. Pure; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "coders/coder.h"
#include "engine/plan.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.pb.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::planner {

namespace pipe = org::apache::beam::model::pipeline::v1;
namespace fn = org::apache::beam::model::fn_execution::v1;

// StageSpec::native_kind of native transforms; native_spec is the serialised PubSubReadPayload or
// PubSubWritePayload.
inline constexpr char kPubSubRead[] = "pubsub_read";
inline constexpr char kPubSubWrite[] =
    "pubsub_write";  // elements: serialised PubsubMessage, as bytes:v1
inline constexpr char kPubSubWriteDynamic[] =
    "pubsub_write_dynamic";  // elements: KV<topic string, such bytes>

// Where a stage meets the data plane: a beam:runner:source or sink transform of its descriptor.
struct Port {
  std::string transform;
  engine::CollectionId collection;  // sinks: what it feeds
  coders::CoderPtr
      windowed_coder;  // of what crosses: windowed_value over a coder that the runner can cut
  bool keyed = false;  // the runner must split KVs
};

struct TimerPort {
  std::string transform, family;
  coders::CoderPtr coder;  // timer:v1 with a cuttable key
};

// A stage that a harness runs. The descriptor lacks only the endpoints: data (payload of each
// port), state and timers.
struct ExecutableStage {
  engine::StageId id;
  std::string environment;
  fn::ProcessBundleDescriptor descriptor;
  Port source;
  std::vector<Port> sinks;
  std::vector<TimerPort> timers;
  bool uses_state = false;  // user state or side inputs
};

struct PlannedPipeline {
  std::shared_ptr<const engine::Plan> plan;
  std::vector<ExecutableStage> stages;
  std::map<std::string, pipe::Environment> environments;  // those that stages use
  // For metrics: transform ids that the planner made → the submitted ones; and unique names by
  // submitted id.
  std::map<std::string, std::string> original_transforms;
  std::map<std::string, std::string> unique_names;
};

// INVALID_ARGUMENT for a broken pipeline, UNIMPLEMENTED with a sentence for what cannot be run
// (unknown requirements, merging custom windows, …).
StatusOr<PlannedPipeline> PlanPipeline(const pipe::Pipeline& pipeline);

}  // namespace millrace::planner
