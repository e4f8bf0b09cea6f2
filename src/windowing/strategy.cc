#include "windowing/strategy.h"

#include <algorithm>
#include <utility>

namespace millrace::windowing {
namespace {

constexpr int kTriggerNodesMax = 64;  // trigger.h keeps finished bits in one word
constexpr int kTriggerDepthMax = 32;

Trigger Composite(Trigger::Kind kind, std::vector<Trigger> subs) {
  Trigger trigger;
  trigger.kind = kind;
  trigger.subs = std::move(subs);
  return trigger;
}

// The largest boundary offset + n * step that is ≤ t. Exact for every t whose boundary exists in
// int64, else the smallest int64.
Millis BoundaryAtOrBefore(Millis t, Millis offset, Millis step) {
  const __int128 distance = static_cast<__int128>(t) - offset;
  __int128 remainder = distance % step;
  if (remainder < 0) remainder += step;
  return SubMillis(t, static_cast<Millis>(remainder));
}

std::string CheckTrigger(const Trigger& trigger, int depth, int* nodes) {
  *nodes += trigger.kind == Trigger::Kind::kAfterEndOfWindow ? 2 : 1;
  if (depth > kTriggerDepthMax || *nodes > kTriggerNodesMax) return "the trigger is too large";
  using Kind = Trigger::Kind;
  switch (trigger.kind) {
    case Kind::kElementCount:
      if (trigger.count < 1) return "an element count trigger needs a count of at least 1";
      break;
    case Kind::kAfterProcessingTime:
      for (const TimestampTransform& step : trigger.transforms) {
        if (step.align && step.period < 1) {
          return "an aligned processing time trigger needs a positive period";
        }
      }
      break;
    case Kind::kRepeat:
      if (trigger.subs.size() != 1) return "a repeat trigger needs one trigger to repeat";
      break;
    case Kind::kOrFinally:
      if (trigger.subs.size() != 2) return "an or-finally trigger needs two triggers";
      break;
    case Kind::kAfterAll:
    case Kind::kAfterAny:
    case Kind::kAfterEach:
      if (trigger.subs.empty()) return "a composite trigger needs at least one trigger";
      break;
    case Kind::kAfterEndOfWindow:
      if (trigger.subs.size() != size_t{trigger.has_early} + size_t{trigger.has_late}) {
        return "an end-of-window trigger's parts do not match its flags";
      }
      break;
    default:
      if (!trigger.subs.empty()) return "a simple trigger has no parts";
      break;
  }
  for (const Trigger& sub : trigger.subs) {
    if (std::string why = CheckTrigger(sub, depth + 1, nodes); !why.empty()) return why;
  }
  return {};
}

}  // namespace

Trigger Trigger::ElementCount(int64_t count) {
  Trigger trigger = Leaf(Kind::kElementCount);
  trigger.count = count;
  return trigger;
}

Trigger Trigger::AfterProcessingTime(Millis delay) {
  Trigger trigger = Leaf(Kind::kAfterProcessingTime);
  trigger.transforms.push_back({.delay = delay});
  return trigger;
}

Trigger Trigger::AfterEndOfWindow(std::optional<Trigger> early, std::optional<Trigger> late) {
  Trigger trigger = Leaf(Kind::kAfterEndOfWindow);
  trigger.has_early = early.has_value();
  trigger.has_late = late.has_value();
  if (early) trigger.subs.push_back(*std::move(early));
  if (late) trigger.subs.push_back(*std::move(late));
  return trigger;
}

Trigger Trigger::Repeat(Trigger sub) {
  Trigger trigger = Leaf(Kind::kRepeat);
  trigger.subs.push_back(std::move(sub));
  return trigger;
}

Trigger Trigger::AfterAll(std::vector<Trigger> subs) {
  return Composite(Kind::kAfterAll, std::move(subs));
}

Trigger Trigger::AfterAny(std::vector<Trigger> subs) {
  return Composite(Kind::kAfterAny, std::move(subs));
}

Trigger Trigger::AfterEach(std::vector<Trigger> subs) {
  return Composite(Kind::kAfterEach, std::move(subs));
}

Trigger Trigger::OrFinally(Trigger main, Trigger finally) {
  Trigger trigger = Leaf(Kind::kOrFinally);
  trigger.subs.push_back(std::move(main));
  trigger.subs.push_back(std::move(finally));
  return trigger;
}

WindowList AssignWindows(const WindowFn& fn, Millis timestamp) {
  switch (fn.kind) {
    case WindowFnKind::kGlobal:
      return WindowList(Window::Global());
    case WindowFnKind::kFixed: {
      const Millis start = BoundaryAtOrBefore(timestamp, fn.offset, fn.size);
      return WindowList(Window::Interval(start, AddMillis(start, fn.size)));
    }
    case WindowFnKind::kSliding: {
      std::vector<Window> windows;
      const Millis after = SubMillis(timestamp, fn.size);
      for (Millis start = BoundaryAtOrBefore(timestamp, fn.offset, fn.period); start > after;) {
        windows.push_back(Window::Interval(start, AddMillis(start, fn.size)));
        if (__builtin_sub_overflow(start, fn.period, &start)) break;
      }
      return WindowList(std::move(windows));
    }
    case WindowFnKind::kSessions:
      return WindowList(Window::Interval(timestamp, AddMillis(timestamp, fn.gap)));
    case WindowFnKind::kCustom:
      break;
  }
  return WindowList();
}

bool EndOfWindowPassed(const Window& window, Millis input_watermark) {
  return input_watermark > std::min(window.MaxTimestamp(), kMaxTimestamp - 1);
}

Millis GarbageCollectionTime(const Window& window, const Strategy& strategy) {
  const Millis max = window.MaxTimestamp();
  const Millis late = AddMillis(max, strategy.allowed_lateness);
  // Lateness of ordinary windows ends with the global window, so that draining a job collects them
  // while timers at the end of the global window can still fire.
  const Millis bound =
      window.kind == WindowKind::kGlobal ? kMaxTimestamp - 1 : std::max(max, kGlobalWindowMax);
  return std::min({late, bound, kMaxTimestamp - 1});
}

Millis HoldTime(TimestampCombiner combiner, const Window& window, Millis timestamp) {
  return combiner == TimestampCombiner::kEndOfWindow ? window.MaxTimestamp()
                                                     : std::min(timestamp, window.MaxTimestamp());
}

Millis CombineTimes(TimestampCombiner combiner, const Window& window, Millis a, Millis b) {
  switch (combiner) {
    case TimestampCombiner::kEarliest:
      return std::min(a, b);
    case TimestampCombiner::kLatest:
      return std::max(a, b);
    case TimestampCombiner::kEndOfWindow:
      break;
  }
  return window.MaxTimestamp();
}

std::string WhyUnsupported(const Strategy& strategy) {
  const WindowFn& fn = strategy.window_fn;
  if (fn.kind == WindowFnKind::kFixed && fn.size < 1) return "fixed windows need a positive size";
  if (fn.kind == WindowFnKind::kSliding && (fn.size < 1 || fn.period < 1)) {
    return "sliding windows need a positive size and period";
  }
  if (fn.kind == WindowFnKind::kSessions && fn.gap < 1) return "sessions need a positive gap";
  if (strategy.allowed_lateness < 0) return "allowed lateness is negative";
  if (strategy.accumulation == AccumulationMode::kRetracting) {
    return "retracting accumulation has no meaning in any SDK";
  }
  int nodes = 0;
  return CheckTrigger(strategy.trigger, 1, &nodes);
}

}  // namespace millrace::windowing
