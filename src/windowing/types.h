// Event time, windows and panes: the words every other streaming folder uses. Plain values; pure
// functions; any thread. How they look on the wire is in wire.h.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::windowing {

// Event time in milliseconds since the Unix epoch; also spans of it.
using Millis = int64_t;

inline constexpr Millis kMinTimestamp = -9223372036854775;
inline constexpr Millis kMaxTimestamp = 9223372036854775;
// Last instant of the global window, one day before the end of time, so that what is due at its end
// can still happen.
inline constexpr Millis kGlobalWindowMax = 9223371950454775;

// Saturating arithmetic over the whole int64 range: times arrive from user code.
constexpr Millis AddMillis(Millis a, Millis b) {
  Millis sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? INT64_MAX : INT64_MIN;
}
constexpr Millis SubMillis(Millis a, Millis b) {
  Millis difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? INT64_MAX : INT64_MIN;
}

enum class WindowKind : uint8_t { kGlobal, kInterval, kCustom };

// One window [start, end). A total order and equality over all fields, so it can be a map key; of
// one kind it orders by start, then end.
struct Window {
  WindowKind kind = WindowKind::kGlobal;
  Millis start = kMinTimestamp;
  Millis end = kGlobalWindowMax + 1;
  // Only for kCustom: the window's whole nested encoding under the custom_window coder, its maximum
  // timestamp included. `start` means nothing then; end - 1 is the maximum timestamp.
  std::string custom;

  static Window Global() { return Window(); }
  static Window Interval(Millis start, Millis end) {
    return Window{WindowKind::kInterval, start, end, {}};
  }
  static Window Custom(Millis max_timestamp, std::string encoded) {
    return Window{WindowKind::kCustom, 0, AddMillis(max_timestamp, 1), std::move(encoded)};
  }

  // The last instant that belongs to the window.
  Millis MaxTimestamp() const { return SubMillis(end, 1); }

  auto operator<=>(const Window&) const = default;
  bool operator==(const Window&) const = default;
};

// The windows of one element: one without allocation (nearly always), or many. Any count, zero too.
class WindowList {
 public:
  WindowList() = default;
  explicit WindowList(Window window) : one_(std::move(window)), single_(true) {}
  explicit WindowList(std::vector<Window> windows) : many_(std::move(windows)) {}

  std::span<const Window> span() const {
    return single_ ? std::span<const Window>(&one_, 1) : std::span<const Window>(many_);
  }
  size_t size() const { return single_ ? 1 : many_.size(); }
  bool empty() const { return size() == 0; }
  const Window& operator[](size_t i) const { return single_ ? one_ : many_[i]; }
  const Window* begin() const { return span().data(); }
  const Window* end() const { return span().data() + size(); }

  // The slot of a single window, for parsers that reuse the list.
  Window& SetSingle() {
    single_ = true;
    return one_;
  }
  // The slots of several windows, emptied.
  std::vector<Window>& SetMany() {
    single_ = false;
    many_.clear();
    return many_;
  }

 private:
  Window one_;
  std::vector<Window> many_;
  bool single_ = false;
};

enum class PaneTiming : uint8_t { kEarly = 0, kOnTime = 1, kLate = 2, kUnknown = 3 };

// Which firing of a window an element came from. nonspeculative_index is -1 for early panes.
struct Pane {
  bool first = true;
  bool last = true;
  PaneTiming timing = PaneTiming::kUnknown;
  int64_t index = 0;
  int64_t nonspeculative_index = 0;

  // The pane of elements that never went through a grouping.
  static Pane NoFiring() { return Pane(); }

  bool operator==(const Pane&) const = default;
};

}  // namespace millrace::windowing
