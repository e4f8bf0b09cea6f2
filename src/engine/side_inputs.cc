#include "engine/side_inputs.h"

#include <algorithm>

namespace millrace::engine {

using windowing::Millis;

Millis SideNeeded(const StageSpec& spec, const windowing::Window& main) {
  Millis needed = INT64_MIN;
  for (const SideInputSpec& side : spec.side_inputs) {
    const windowing::WindowList windows =
        windowing::AssignWindows(side.strategy.window_fn, main.MaxTimestamp());
    Millis end = windows.empty() ? main.MaxTimestamp() : windows[0].MaxTimestamp();
    for (const windowing::Window& window : windows) end = std::min(end, window.MaxTimestamp());
    needed = std::max(needed, end);
  }
  return needed;
}

}  // namespace millrace::engine
