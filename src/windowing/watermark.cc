#include "windowing/watermark.h"

namespace millrace::windowing {

std::optional<Millis> ElementHold(const Strategy& strategy, const Window& window, Millis timestamp,
                                  Millis input_watermark, Millis output_watermark) {
  const Millis hold = HoldTime(strategy.output_time, window, timestamp);
  if (hold < output_watermark || EndOfWindowPassed(window, input_watermark)) return std::nullopt;
  return hold;
}

std::optional<Millis> CollectionHold(const Strategy& strategy, const Window& window, bool empty,
                                     Millis output_watermark) {
  if (strategy.allowed_lateness == 0) return std::nullopt;  // the end of the window collects it
  if (empty && strategy.closing == ClosingBehavior::kEmitIfNonempty) return std::nullopt;
  const Millis hold = GarbageCollectionTime(window, strategy);
  if (hold < output_watermark) return std::nullopt;
  return hold;
}

}  // namespace millrace::windowing
