// Runs a trigger: decides when a (key, window) cell emits a pane.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windowing/strategy.h"
#include "windowing/types.h"

namespace millrace::windowing {

// What a trigger may look at: the processing clock, and whether the input watermark has passed the
// end of the cell's window (EndOfWindowPassed).
struct TriggerClock {
  Millis now = 0;
  bool end_of_window_passed = false;
};

// A cell's trigger state; a plain value that belongs to the cell. For the default trigger it is
// always empty, and the empty state encodes to an empty string.
struct TriggerState {
  // An element count, or the target time of a processing-time trigger.
  struct Slot {
    uint8_t node = 0;
    int64_t value = 0;
    bool operator==(const Slot&) const = default;
  };
  uint64_t finished = 0;    // one bit a node
  std::vector<Slot> slots;  // ascending nodes; absent: nothing counted, no target

  bool empty() const { return finished == 0 && slots.empty(); }
  bool operator==(const TriggerState&) const = default;

  void AppendTo(std::string& out) const;
  // The whole of `in`. Accepts only what AppendTo writes.
  static std::optional<TriggerState> Parse(std::string_view in);
};

// One trigger, compiled: immutable, shared by all cells of a stage, any thread. All methods are
// pure functions of state and clock. It keeps no timers: after each call the engine asks NextTimer,
// and looks again (ShouldFire) when the watermark passes the end of the window, when the timer is
// due, and after elements. Panes, emptiness and lateness are not its concern (pane_rules.h).
class TriggerMachine {
 public:
  // REQUIRES WhyUnsupported is empty for the strategy. `merging`: windows of this strategy merge,
  // so parts that are not active yet or any more keep watching, since a merge can revive them.
  TriggerMachine(const Trigger& trigger, bool merging);

  // `count` elements arrived for the cell. REQUIRES !IsFinished.
  void OnElements(TriggerState& state, const TriggerClock& clock, int64_t count = 1) const;

  bool ShouldFire(const TriggerState& state, const TriggerClock& clock) const;

  // A pane was emitted, or would have been but for being empty. REQUIRES ShouldFire.
  void OnFire(TriggerState& state, const TriggerClock& clock) const;

  // The cell's trigger will never fire again: further elements are dropped. The state must be kept
  // until garbage collection to know that.
  bool IsFinished(const TriggerState& state) const { return (state.finished & 1) != 0; }

  // The state of a window made by merging cells with the states `merging`. With `result_is_first`
  // the result is one of the merged windows, given first; the clock is that of the result.
  TriggerState Merge(std::span<const TriggerState> merging, bool result_is_first,
                     const TriggerClock& clock) const;

  // The next instant of the processing clock after `now` at which ShouldFire may change.
  std::optional<Millis> NextTimer(const TriggerState& state, Millis now) const;

  // A cell of this trigger has no state and fires exactly when the window has ended.
  bool IsDefault() const { return nodes_[0].kind == Trigger::Kind::kDefault; }

 private:
  // Nodes stand in preorder: the first child follows its parent, `end` is one past the subtree.
  // kAfterEndOfWindow with any part has its early part (never, if absent) as first child; that
  // child's finished bit says that the window's end was fired.
  struct Node {
    Trigger::Kind kind = Trigger::Kind::kDefault;
    uint8_t end = 0;
    int64_t count = 0;
    std::vector<TimestampTransform> transforms;
  };
  struct MergeInput;

  void Compile(const Trigger& trigger);
  bool HasParts(int n) const { return nodes_[n].end > n + 1; }
  int Early(int n) const { return n + 1; }
  std::optional<int> Late(int n) const;
  int FirstUnfinished(const TriggerState& state, int n) const;

  void Elements(TriggerState& state, const TriggerClock& clock, int64_t count, int n) const;
  bool Should(const TriggerState& state, const TriggerClock& clock, int n) const;
  void Fire(TriggerState& state, const TriggerClock& clock, int n) const;
  void FireEndOfWindow(TriggerState& state, const TriggerClock& clock, int n) const;
  void MergeNode(TriggerState& state, const MergeInput& input, int n) const;
  void MergeEndOfWindow(TriggerState& state, const MergeInput& input, int n) const;
  void FinishByParts(TriggerState& state, int n) const;
  void Clear(TriggerState& state, int n) const;
  void Reset(TriggerState& state, int n) const;
  Millis Target(const Node& node, Millis now) const;

  std::vector<Node> nodes_;
  bool merging_;
};

}  // namespace millrace::windowing
