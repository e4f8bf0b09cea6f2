// A PCollection's windowing strategy as the engine uses it: how windows come about, when panes fire
// and how long a window lives. Filled by the planner from the proto; immutable afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "windowing/types.h"

namespace millrace::windowing {

// kCustom functions live in the SDK; the runner knows only their windows' maximum timestamps.
enum class WindowFnKind : uint8_t { kGlobal, kFixed, kSliding, kSessions, kCustom };

struct WindowFn {
  WindowFnKind kind = WindowFnKind::kGlobal;
  Millis size = 0;    // fixed, sliding
  Millis offset = 0;  // fixed, sliding
  Millis period = 0;  // sliding
  Millis gap = 0;     // sessions
  // The proto's function as it came: wanted for assignment and merging in the harness.
  std::string urn;
  std::string payload;

  bool operator==(const WindowFn&) const = default;
};

// How a processing-time trigger turns the clock at a pane's first element into its target: one
// step of several, each either a delay or an alignment up to the next multiple.
struct TimestampTransform {
  bool align = false;
  Millis delay = 0;   // !align
  Millis period = 0;  // align: t moves up to the next offset + n * period
  Millis offset = 0;

  bool operator==(const TimestampTransform&) const = default;
};

// A trigger as written by the user; trigger.h runs it.
struct Trigger {
  enum class Kind : uint8_t {
    kDefault,
    kElementCount,
    kAfterProcessingTime,
    kAfterSynchronizedProcessingTime,
    kAfterEndOfWindow,
    kAlways,
    kNever,
    kRepeat,
    kAfterAll,
    kAfterAny,
    kAfterEach,
    kOrFinally,
  };
  Kind kind = Kind::kDefault;
  int64_t count = 0;                           // kElementCount
  std::vector<TimestampTransform> transforms;  // kAfterProcessingTime, in order
  // kRepeat: the one repeated. kOrFinally: main, finally. kAfterAll, -Any, -Each: all, in order.
  // kAfterEndOfWindow: early if has_early, then late if has_late.
  std::vector<Trigger> subs;
  bool has_early = false;
  bool has_late = false;

  static Trigger Default() { return Trigger(); }
  static Trigger Always() { return Leaf(Kind::kAlways); }
  static Trigger Never() { return Leaf(Kind::kNever); }
  static Trigger ElementCount(int64_t count);
  static Trigger AfterProcessingTime(Millis delay);
  static Trigger AfterEndOfWindow(std::optional<Trigger> early, std::optional<Trigger> late);
  static Trigger Repeat(Trigger sub);
  static Trigger AfterAll(std::vector<Trigger> subs);
  static Trigger AfterAny(std::vector<Trigger> subs);
  static Trigger AfterEach(std::vector<Trigger> subs);
  static Trigger OrFinally(Trigger main, Trigger finally);

  bool operator==(const Trigger&) const = default;

 private:
  static Trigger Leaf(Kind kind) {
    Trigger trigger;
    trigger.kind = kind;
    return trigger;
  }
};

enum class AccumulationMode : uint8_t { kDiscarding, kAccumulating, kRetracting };
enum class TimestampCombiner : uint8_t { kEndOfWindow, kLatest, kEarliest };
enum class ClosingBehavior : uint8_t { kEmitAlways, kEmitIfNonempty };
enum class OnTimeBehavior : uint8_t { kFireAlways, kFireIfNonempty };

struct Strategy {
  WindowFn window_fn;
  bool merging = false;
  bool assigns_to_one_window = true;
  WindowKind window_kind = WindowKind::kGlobal;
  Trigger trigger;
  AccumulationMode accumulation = AccumulationMode::kDiscarding;
  TimestampCombiner output_time = TimestampCombiner::kEndOfWindow;
  ClosingBehavior closing = ClosingBehavior::kEmitIfNonempty;
  OnTimeBehavior on_time = OnTimeBehavior::kFireAlways;
  Millis allowed_lateness = 0;
  std::string environment_id;  // where a custom window_fn lives

  bool operator==(const Strategy&) const = default;
};

// The windows that a standard window function gives an element at `timestamp`. The harness does
// this for user pipelines; the runner needs it for side windows, native transforms and tests.
// kCustom gives none. Sizes, periods and gaps must be positive.
WindowList AssignWindows(const WindowFn& fn, Millis timestamp);

// The input watermark has passed the end of `window` (its maximum timestamp). True for every window
// once the watermark is at the end of time, also where an SDK made a window that ends later.
bool EndOfWindowPassed(const Window& window, Millis input_watermark);

// When the state of `window` goes: its maximum timestamp plus allowed lateness, capped at the end
// of the global window (for the global window itself and windows beyond it: just before the end of
// time, which every watermark passes at last). Strictly after this instant of the input watermark
// the window is expired.
Millis GarbageCollectionTime(const Window& window, const Strategy& strategy);

// An element in `window` that arrives at `input_watermark` is too late to be taken up.
inline bool IsExpired(const Window& window, const Strategy& strategy, Millis input_watermark) {
  return GarbageCollectionTime(window, strategy) < input_watermark;
}

// The time a grouping's hold or output takes on for one element.
Millis HoldTime(TimestampCombiner combiner, const Window& window, Millis timestamp);
// The same for two such times in one pane.
Millis CombineTimes(TimestampCombiner combiner, const Window& window, Millis a, Millis b);

// Why the engine cannot run this strategy (a negative size, retractions, …), empty if it can.
std::string WhyUnsupported(const Strategy& strategy);

}  // namespace millrace::windowing
