// ProcessBundleDescriptors: what a harness is told of a fused stage.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/fuse.h"
#include "planner/graph.h"
#include "planner/planner.h"
#include "planner/wire_coders.h"

namespace millrace::planner {

// A collection of the stage that others read.
struct SinkEnd {
  std::string collection;
  engine::CollectionId id;
  std::string windowed_coder;  // coder id of what crosses
};

struct StageEnds {
  std::string input;
  std::vector<SinkEnd> sinks;
};

StatusOr<ExecutableStage> MakeExecutableStage(const Graph& graph, WireCoders& coders,
                                              const FusedStage& fused, const StageEnds& ends,
                                              engine::StageId id);

}  // namespace millrace::planner
