// Fusion: harness transforms that can hand elements to each other in memory become one stage.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/graph.h"

namespace millrace::planner {

struct FusedStage {
  std::string root_input;  // the collection all its roots read
  std::string environment;
  std::vector<size_t> leaves;  // of Graph::leaves, in order
  bool alone = false;  // state, side inputs or restrictions: no sibling joins, heads the stage
};

// Greedy, in data-flow order. A transform joins the stage of its producer unless it must head one
// (state, timers, side inputs, restrictions) or the environments differ; roots of the same
// collection share a stage, so that a native source acks all its branches with one commit — save on
// Impulse, where a failing sibling must not be held up by a blocking one.
std::vector<FusedStage> Fuse(const Graph& graph);

}  // namespace millrace::planner
