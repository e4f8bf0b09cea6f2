// What is refused before planning, with a sentence each.
#pragma once

#include "base/status.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::planner {

// References resolve, requirements are known.
Status Validate(const org::apache::beam::model::pipeline::v1::Pipeline& pipeline);

}  // namespace millrace::planner
