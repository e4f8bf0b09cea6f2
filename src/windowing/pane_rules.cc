#include "windowing/pane_rules.h"

#include "windowing/wire.h"

namespace millrace::windowing {

void PaneHistory::AppendTo(std::string& out) const {
  if (panes == 0) return;
  AppendVarint(out, panes);
  AppendVarint(out, panes_not_early);
}

std::optional<PaneHistory> PaneHistory::Parse(std::string_view in) {
  PaneHistory history;
  if (in.empty()) return history;
  if (!ParseVarint(in, &history.panes) || !ParseVarint(in, &history.panes_not_early) ||
      !in.empty() || history.panes < 1 || history.panes_not_early < 0 ||
      history.panes_not_early > history.panes) {
    return std::nullopt;
  }
  return history;
}

PaneTiming NextTiming(const Window& window, const PaneHistory& history,
                      const PaneSituation& situation) {
  if (history.panes_not_early > 0 || EndOfWindowPassed(window, situation.output_watermark)) {
    return PaneTiming::kLate;
  }
  return EndOfWindowPassed(window, situation.input_watermark) ? PaneTiming::kOnTime
                                                              : PaneTiming::kEarly;
}

std::optional<Pane> EmitPane(const Strategy& strategy, const Window& window,
                             const PaneSituation& situation, PaneHistory& history) {
  const PaneTiming timing = NextTiming(window, history, situation);
  const bool wanted_empty =
      (timing == PaneTiming::kOnTime && strategy.on_time == OnTimeBehavior::kFireAlways) ||
      (situation.final && strategy.closing == ClosingBehavior::kEmitAlways);
  if (situation.empty && !wanted_empty) return std::nullopt;

  Pane pane;
  pane.first = history.panes == 0;
  pane.last = situation.final;
  pane.timing = timing;
  pane.index = history.panes++;
  pane.nonspeculative_index = timing == PaneTiming::kEarly ? -1 : history.panes_not_early++;
  return pane;
}

}  // namespace millrace::windowing
