// CombinePerKey as three harness transforms around a GroupByKey of accumulators, so that values are
// added up before the shuffle.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/graph.h"

namespace millrace::planner {

// The trigger fires the same whether it sees elements or accumulators of them, and the
// accumulator's coder is known.
bool CanLift(const pipe::Components& components, const pipe::PTransform& combine);

// Adds the parts to the components and returns their ids in order.
StatusOr<std::vector<std::string>> LiftCombine(Graph& graph, const std::string& id);

}  // namespace millrace::planner
