// What a harness runs for one fused stage, and where it meets the runner's data plane.
#pragma once

#include <string>
#include <vector>

#include "coders/coder.h"
#include "engine/element.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.pb.h"

namespace millrace::fnapi {

namespace fn = org::apache::beam::model::fn_execution::v1;
namespace pipe = org::apache::beam::model::pipeline::v1;

struct PortProgram {
  std::string transform;            // id of the beam:runner:source or sink in the descriptor
  engine::CollectionId collection;  // sinks
  coders::CoderPtr windowed_coder;
  bool keyed = false;  // KVs are to be split
};

struct TimerProgram {
  std::string transform, family;
  coders::CoderPtr coder;  // timer:v1
};

// Immutable; the descriptor's endpoints are filled in (SetEndpoints).
struct StageProgram {
  engine::StageId id;
  fn::ProcessBundleDescriptor descriptor;
  PortProgram source;
  std::vector<PortProgram> sinks;
  std::vector<TimerProgram> timers;
  bool uses_state = false;
};

// Puts the runner's address into ports and state and timer endpoints.
void SetEndpoints(StageProgram& program, const std::string& url);

}  // namespace millrace::fnapi
