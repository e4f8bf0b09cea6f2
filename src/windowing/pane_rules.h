// Which pane a cell emits, if any. Pure; any thread. Whether it is time to emit is the trigger's
// decision (trigger.h) or garbage collection's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "windowing/strategy.h"
#include "windowing/types.h"

namespace millrace::windowing {

// What a cell has emitted so far; part of its durable state. Encodes to an empty string if nothing.
// Merging windows lose the histories of the merged-away ones.
struct PaneHistory {
  int64_t panes = 0;
  int64_t panes_not_early = 0;

  bool operator==(const PaneHistory&) const = default;
  void AppendTo(std::string& out) const;
  static std::optional<PaneHistory> Parse(std::string_view in);
};

struct PaneSituation {
  Millis input_watermark = kMinTimestamp;
  // Of the grouping's own stage, before this pane.
  Millis output_watermark = kMinTimestamp;
  // No element came since the last pane.
  bool empty = false;
  // The trigger is finished by this firing, or the window is being collected.
  bool final = false;
};

// The timing the next pane of a cell would have: early until the input watermark passes the end of
// the window; on time once, for the first pane after that; late ever after, and also when nothing
// downstream could still see it as on time.
PaneTiming NextTiming(const Window& window, const PaneHistory& history,
                      const PaneSituation& situation);

// The pane to emit now, recorded in `history`; nothing if the rules suppress it, being empty, and
// then `history` is unchanged.
std::optional<Pane> EmitPane(const Strategy& strategy, const Window& window,
                             const PaneSituation& situation, PaneHistory& history);

}  // namespace millrace::windowing
