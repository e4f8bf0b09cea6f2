// Side inputs: collections materialised by window (and key) for the transforms that look things up
// in them.
#pragma once

#include <string>
#include <vector>

#include "engine/chunk.h"
#include "engine/plan.h"
#include "storage/store.h"

namespace millrace::engine {

// How far the watermarks of the stage's side inputs must be before elements in `main` may be
// processed.
windowing::Millis SideNeeded(const StageSpec& spec, const windowing::Window& main);

}  // namespace millrace::engine
