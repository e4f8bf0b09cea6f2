// Engine metrics as Beam's clients want them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/bundle_runner.h"
#include "jobs/types.h"
#include "planner/planner.h"

namespace millrace::jobs {

// PTRANSFORM labels become unique names of submitted transforms.
api::MetricResults ToMetricResults(const std::vector<engine::Metric>& attempted,
                                   const std::vector<engine::Metric>& committed,
                                   const planner::PlannedPipeline& pipeline);

}  // namespace millrace::jobs
