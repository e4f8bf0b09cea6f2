// Watermark and hold arithmetic: minima that only move forward. Pure; any thread. Which values go
// in is the engine's knowledge.
#pragma once

#include <algorithm>
#include <optional>

#include "windowing/strategy.h"
#include "windowing/types.h"

namespace millrace::windowing {

constexpr Millis ClampToTime(Millis time) { return std::clamp(time, kMinTimestamp, kMaxTimestamp); }

// Moves `watermark` up to `candidate`, never back. True if it moved.
constexpr bool Advance(Millis& watermark, Millis candidate) {
  candidate = ClampToTime(candidate);
  if (candidate <= watermark) return false;
  watermark = candidate;
  return true;
}

// The lower of two bounds of which either may be absent, meaning no bound.
constexpr std::optional<Millis> Lower(std::optional<Millis> a, std::optional<Millis> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

// A stage's input watermark by what feeds it: the producers' output watermarks, and the smallest
// timestamp among elements that wait or are being processed.
constexpr Millis InputWatermark(Millis upstream, std::optional<Millis> oldest_pending) {
  return ClampToTime(oldest_pending ? std::min(upstream, *oldest_pending) : upstream);
}

// A stage's output watermark: a hold keeps the watermark at its own time.
constexpr Millis OutputWatermark(Millis input, std::optional<Millis> smallest_hold) {
  return ClampToTime(smallest_hold ? std::min(input, *smallest_hold) : input);
}

// A timer is due at or before the watermark.
constexpr bool IsDue(Millis timer, Millis watermark) { return timer <= watermark; }

// The hold that an element buffered by a grouping adds, if it may: an element behind the output
// watermark cannot hold it, and past the end of the window nothing would release it.
std::optional<Millis> ElementHold(const Strategy& strategy, const Window& window, Millis timestamp,
                                  Millis input_watermark, Millis output_watermark);

// The hold that keeps the output watermark back until the window's last pane, for a cell without
// element hold. `empty`: there is nothing to emit so far.
std::optional<Millis> CollectionHold(const Strategy& strategy, const Window& window, bool empty,
                                     Millis output_watermark);

// The timestamp of a pane whose elements combined to `hold` (absent: all were late or it held for
// collection only).
inline Millis PaneTimestamp(const Strategy& strategy, const Window& window,
                            std::optional<Millis> hold) {
  const Millis max = window.MaxTimestamp();
  if (!hold || strategy.output_time == TimestampCombiner::kEndOfWindow) return max;
  return std::min(*hold, max);
}

}  // namespace millrace::windowing
