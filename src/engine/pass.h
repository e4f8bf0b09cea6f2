// Stages with nothing to run: their input goes to their outputs as it is.
#pragma once

#include <vector>

#include "engine/bundle.h"
#include "engine/plan.h"

namespace millrace::engine {

// What a bundle of these items gives: one chunk an output collection (none if there are no
// elements).
StatusOr<std::vector<PackedChunk>> PassThrough(const std::vector<Item>& items,
                                               const StageSpec& spec, const Plan& plan);

}  // namespace millrace::engine
