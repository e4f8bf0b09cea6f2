// Windowing strategies: from the proto to what the engine uses.
#pragma once

#include <string>

#include "base/status.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"
#include "windowing/strategy.h"

namespace millrace::planner {

namespace pipe = org::apache::beam::model::pipeline::v1;

// UNIMPLEMENTED with a sentence for what the engine cannot run.
StatusOr<windowing::Strategy> ReadStrategy(const pipe::Components& components,
                                           const std::string& strategy_id);

}  // namespace millrace::planner
