// A splittable DoFn as three transforms: pair with restriction, split and size, process (spec: SDF
// expansion).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/graph.h"

namespace millrace::planner {

bool IsSplittable(const pipe::PTransform& transform);

// Adds the parts to the components and returns their ids in order. Side inputs go to every part.
StatusOr<std::vector<std::string>> ExpandSplittable(Graph& graph, const std::string& id);

}  // namespace millrace::planner
