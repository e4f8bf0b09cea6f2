#include "windowing/trigger.h"

#include <algorithm>

#include "windowing/wire.h"

namespace millrace::windowing {
namespace {

using Kind = Trigger::Kind;

constexpr int kNodesMax = 64;

constexpr uint64_t Bit(int n) { return uint64_t{1} << n; }
bool Finished(const TriggerState& state, int n) { return (state.finished & Bit(n)) != 0; }
void SetFinished(TriggerState& state, int n, bool finished) {
  state.finished = finished ? state.finished | Bit(n) : state.finished & ~Bit(n);
}

std::vector<TriggerState::Slot>::const_iterator LowerBound(
    const std::vector<TriggerState::Slot>& slots, int n) {
  return std::lower_bound(
      slots.begin(), slots.end(), n,
      [](const TriggerState::Slot& slot, int node) { return slot.node < node; });
}

std::optional<int64_t> Get(const TriggerState& state, int n) {
  const auto it = LowerBound(state.slots, n);
  if (it == state.slots.end() || it->node != n) return std::nullopt;
  return it->value;
}

void Set(TriggerState& state, int n, int64_t value) {
  const auto at = LowerBound(state.slots, n) - state.slots.cbegin();
  if (at < static_cast<ptrdiff_t>(state.slots.size()) && state.slots[at].node == n) {
    state.slots[at].value = value;
  } else {
    state.slots.insert(state.slots.begin() + at, {static_cast<uint8_t>(n), value});
  }
}

}  // namespace

void TriggerState::AppendTo(std::string& out) const {
  if (empty()) return;
  AppendVarint(out, finished);
  for (const Slot& slot : slots) {
    out.push_back(static_cast<char>(slot.node));
    AppendVarint(out, slot.value);
  }
}

std::optional<TriggerState> TriggerState::Parse(std::string_view in) {
  TriggerState state;
  if (in.empty()) return state;
  if (!ParseVarint(in, &state.finished)) return std::nullopt;
  int previous = -1;
  while (!in.empty()) {
    Slot slot;
    slot.node = static_cast<uint8_t>(in[0]);
    in.remove_prefix(1);
    if (slot.node >= kNodesMax || slot.node <= previous || !ParseVarint(in, &slot.value)) {
      return std::nullopt;
    }
    previous = slot.node;
    state.slots.push_back(slot);
  }
  if (state.empty()) return std::nullopt;
  return state;
}

struct TriggerMachine::MergeInput {
  std::span<const TriggerState> merging;
  TriggerClock clock;

  bool FinishedInAny(int n) const {
    return std::any_of(merging.begin(), merging.end(),
                       [n](const TriggerState& state) { return Finished(state, n); });
  }
  bool FinishedInAll(int n) const {
    return std::all_of(merging.begin(), merging.end(),
                       [n](const TriggerState& state) { return Finished(state, n); });
  }
};

TriggerMachine::TriggerMachine(const Trigger& trigger, bool merging) : merging_(merging) {
  Compile(trigger);
}

void TriggerMachine::Compile(const Trigger& trigger) {
  const size_t n = nodes_.size();
  nodes_.push_back({trigger.kind, 0, trigger.count, trigger.transforms});
  if (trigger.kind == Kind::kAfterEndOfWindow && trigger.has_late && !trigger.has_early) {
    nodes_.push_back({Kind::kNever, static_cast<uint8_t>(nodes_.size() + 1), 0, {}});
  }
  for (const Trigger& sub : trigger.subs) Compile(sub);
  nodes_[n].end = static_cast<uint8_t>(nodes_.size());
}

std::optional<int> TriggerMachine::Late(int n) const {
  const int late = nodes_[Early(n)].end;
  if (late == nodes_[n].end) return std::nullopt;
  return late;
}

// The first part that is not finished, or the end of the subtree.
int TriggerMachine::FirstUnfinished(const TriggerState& state, int n) const {
  int sub = n + 1;
  while (sub < nodes_[n].end && Finished(state, sub)) sub = nodes_[sub].end;
  return sub;
}

void TriggerMachine::OnElements(TriggerState& state, const TriggerClock& clock,
                                int64_t count) const {
  Elements(state, clock, count, 0);
}

bool TriggerMachine::ShouldFire(const TriggerState& state, const TriggerClock& clock) const {
  return !IsFinished(state) && Should(state, clock, 0);
}

void TriggerMachine::OnFire(TriggerState& state, const TriggerClock& clock) const {
  Fire(state, clock, 0);
}

TriggerState TriggerMachine::Merge(std::span<const TriggerState> merging, bool result_is_first,
                                   const TriggerClock& clock) const {
  TriggerState state;
  if (result_is_first && !merging.empty()) state.finished = merging[0].finished;
  MergeNode(state, {merging, clock}, 0);
  return state;
}

std::optional<Millis> TriggerMachine::NextTimer(const TriggerState& state, Millis now) const {
  std::optional<Millis> next;
  for (const TriggerState::Slot& slot : state.slots) {
    if (nodes_[slot.node].kind == Kind::kElementCount || slot.value <= now) continue;
    if (!next || slot.value < *next) next = slot.value;
  }
  return next;
}

Millis TriggerMachine::Target(const Node& node, Millis now) const {
  Millis target = now;
  for (const TimestampTransform& step : node.transforms) {
    if (!step.align) {
      target = AddMillis(target, step.delay);
      continue;
    }
    const __int128 past = (static_cast<__int128>(target) - step.offset) % step.period;
    if (past == 0) continue;
    target = AddMillis(target, static_cast<Millis>(past > 0 ? step.period - past : -past));
  }
  return target;
}

void TriggerMachine::Elements(TriggerState& state, const TriggerClock& clock, int64_t count,
                              int n) const {
  const Node& node = nodes_[n];
  switch (node.kind) {
    case Kind::kElementCount:
      if (!Finished(state, n)) Set(state, n, AddMillis(Get(state, n).value_or(0), count));
      return;
    case Kind::kAfterProcessingTime:
    case Kind::kAfterSynchronizedProcessingTime:
      if (!Finished(state, n) && !Get(state, n)) Set(state, n, Target(node, clock.now));
      return;
    case Kind::kAfterEndOfWindow:
    case Kind::kAfterEach:
      if (!merging_) {
        const int active = FirstUnfinished(state, n);
        if (active < node.end) Elements(state, clock, count, active);
        return;
      }
      break;
    default:
      break;
  }
  for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
    Elements(state, clock, count, sub);
  }
}

bool TriggerMachine::Should(const TriggerState& state, const TriggerClock& clock, int n) const {
  const Node& node = nodes_[n];
  switch (node.kind) {
    case Kind::kDefault:
      return clock.end_of_window_passed;
    case Kind::kElementCount:
      return Get(state, n).value_or(0) >= node.count;
    case Kind::kAfterProcessingTime:
    case Kind::kAfterSynchronizedProcessingTime: {
      const std::optional<int64_t> target = Get(state, n);
      return target && clock.now >= *target;
    }
    case Kind::kAfterEndOfWindow: {
      if (!HasParts(n)) return clock.end_of_window_passed;
      if (!Finished(state, Early(n))) {
        return clock.end_of_window_passed || Should(state, clock, Early(n));
      }
      const std::optional<int> late = Late(n);
      return late && Should(state, clock, *late);
    }
    case Kind::kAlways:
      return true;
    case Kind::kNever:
      return false;
    case Kind::kRepeat:
      return Should(state, clock, n + 1);
    case Kind::kAfterAll:
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
        if (!Finished(state, sub) && !Should(state, clock, sub)) return false;
      }
      return true;
    case Kind::kAfterAny:
    case Kind::kOrFinally:
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
        if (!Finished(state, sub) && Should(state, clock, sub)) return true;
      }
      return false;
    case Kind::kAfterEach: {
      const int active = FirstUnfinished(state, n);
      return active < node.end && Should(state, clock, active);
    }
  }
  return false;
}

void TriggerMachine::Fire(TriggerState& state, const TriggerClock& clock, int n) const {
  const Node& node = nodes_[n];
  switch (node.kind) {
    case Kind::kDefault:
    case Kind::kAlways:
    case Kind::kNever:
      return;
    case Kind::kElementCount:
    case Kind::kAfterProcessingTime:
    case Kind::kAfterSynchronizedProcessingTime:
      Clear(state, n);
      SetFinished(state, n, true);
      return;
    case Kind::kAfterEndOfWindow:
      return FireEndOfWindow(state, clock, n);
    case Kind::kRepeat:
      Fire(state, clock, n + 1);
      if (Finished(state, n + 1)) Reset(state, n + 1);
      return;
    case Kind::kAfterAll:
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
        if (!Finished(state, sub)) Fire(state, clock, sub);
      }
      return FinishByParts(state, n);
    case Kind::kAfterAny:
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
        // A part that was not ready watched the pane that is gone now.
        if (Should(state, clock, sub)) {
          Fire(state, clock, sub);
        } else {
          Clear(state, sub);
        }
      }
      return SetFinished(state, n, true);
    case Kind::kAfterEach:
      Fire(state, clock, FirstUnfinished(state, n));
      if (merging_) Clear(state, n);  // the other parts watched the same pane
      return FinishByParts(state, n);
    case Kind::kOrFinally: {
      const int finally = nodes_[n + 1].end;
      if (Should(state, clock, finally)) {
        Fire(state, clock, finally);
        Clear(state, n + 1);
      } else {
        Fire(state, clock, n + 1);  // `finally` goes on counting over panes
      }
      return FinishByParts(state, n);
    }
  }
}

void TriggerMachine::FireEndOfWindow(TriggerState& state, const TriggerClock& clock, int n) const {
  if (!HasParts(n)) return SetFinished(state, n, true);
  const int early = Early(n);
  const std::optional<int> late = Late(n);
  if (!Finished(state, early)) {
    if (clock.end_of_window_passed) {
      Reset(state, early);
      SetFinished(state, early, true);
      if (late) {
        Reset(state, *late);
      } else {
        SetFinished(state, n, true);
      }
    } else {
      Fire(state, clock, early);
      // Early firings repeat. A part that is not done (a repeat, say) keeps its own state.
      if (Finished(state, early)) Reset(state, early);
    }
    return;
  }
  if (!late) return SetFinished(state, n, true);
  Fire(state, clock, *late);
  if (Finished(state, *late)) Reset(state, *late);
}

void TriggerMachine::MergeNode(TriggerState& state, const MergeInput& input, int n) const {
  const Node& node = nodes_[n];
  switch (node.kind) {
    case Kind::kDefault:
    case Kind::kAlways:
    case Kind::kNever:
      return;
    case Kind::kElementCount: {
      SetFinished(state, n, input.FinishedInAny(n));
      if (Finished(state, n)) return Clear(state, n);
      int64_t sum = 0;
      for (const TriggerState& other : input.merging) {
        sum = AddMillis(sum, Get(other, n).value_or(0));
      }
      if (sum > 0) Set(state, n, sum);
      return;
    }
    case Kind::kAfterProcessingTime:
    case Kind::kAfterSynchronizedProcessingTime:
      if (Finished(state, n)) return Clear(state, n);
      for (const TriggerState& other : input.merging) {
        const std::optional<int64_t> target = Get(other, n);
        if (target) Set(state, n, std::min(*target, Get(state, n).value_or(*target)));
      }
      return;
    case Kind::kAfterEndOfWindow:
      return MergeEndOfWindow(state, input, n);
    case Kind::kRepeat:
      MergeNode(state, input, n + 1);
      if (Finished(state, n + 1)) Reset(state, n + 1);
      return;
    case Kind::kAfterEach: {
      bool prior_finished = true;
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
        if (prior_finished) {
          MergeNode(state, input, sub);
          prior_finished = Finished(state, sub);
        } else {
          Reset(state, sub);  // has not begun, now that an earlier part is open again
        }
      }
      return FinishByParts(state, n);
    }
    case Kind::kAfterAll:
    case Kind::kAfterAny:
    case Kind::kOrFinally:
      for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) MergeNode(state, input, sub);
      return FinishByParts(state, n);
  }
}

void TriggerMachine::MergeEndOfWindow(TriggerState& state, const MergeInput& input, int n) const {
  const bool ended = input.clock.end_of_window_passed;
  if (!HasParts(n)) return SetFinished(state, n, ended && input.FinishedInAll(n));
  const int early = Early(n);
  const std::optional<int> late = Late(n);
  if (ended && input.FinishedInAll(early)) {
    Reset(state, early);
    SetFinished(state, early, true);
    if (late) {
      MergeNode(state, input, *late);
      if (Finished(state, *late)) Reset(state, *late);
    }
    return SetFinished(state, n, !late && input.FinishedInAll(n));
  }
  // The end of the merged window is still to fire: some elements have not been in an on-time pane.
  MergeNode(state, input, early);
  if (Finished(state, early)) Reset(state, early);
  if (late) Reset(state, *late);
  SetFinished(state, n, false);
}

// kAfterAll and kAfterEach end with all their parts, kAfterAny and kOrFinally with any.
void TriggerMachine::FinishByParts(TriggerState& state, int n) const {
  const Node& node = nodes_[n];
  bool all = true;
  bool any = false;
  for (int sub = n + 1; sub < node.end; sub = nodes_[sub].end) {
    all = all && Finished(state, sub);
    any = any || Finished(state, sub);
  }
  SetFinished(state, n, node.kind == Kind::kAfterAny || node.kind == Kind::kOrFinally ? any : all);
}

void TriggerMachine::Clear(TriggerState& state, int n) const {
  const int end = nodes_[n].end;
  std::erase_if(state.slots, [n, end](const TriggerState::Slot& slot) {
    return slot.node >= n && slot.node < end;
  });
}

void TriggerMachine::Reset(TriggerState& state, int n) const {
  Clear(state, n);
  for (int sub = n; sub < nodes_[n].end; ++sub) SetFinished(state, sub, false);
}

}  // namespace millrace::windowing
