// The windows of one key that are active under a merging window function, and where their contents
// live.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windowing/types.h"

namespace millrace::windowing {

// Windows that become one: a merge function's answer.
struct WindowGroup {
  Window result;
  std::vector<Window> members;

  bool operator==(const WindowGroup&) const = default;
};

// Joins overlapping intervals, as sessions do: windows that only touch stay apart. Every window
// stands in one group; groups and members ascend.
std::vector<WindowGroup> GroupSessions(std::vector<Window> windows);

// What a merge means for cells: those of `merged` become the one of `result`.
struct WindowMerge {
  Window result;
  // The windows that had cells before: never empty, never the result alone. If the result is one of
  // them it is the first (the order TriggerMachine::Merge wants); the others ascend.
  std::vector<Window> merged;
  bool result_is_merged = false;

  bool operator==(const WindowMerge&) const = default;
};

// The active windows of one key. Each has state addresses: the windows under which its buffered
// values were written, so that a merge moves no value. Part of the key's durable state; encodes to
// an empty string if no window is active. Single-threaded; owned by whoever decides for the key.
//
// One round, for the elements of one key: Add every window of the elements; then Merge (sessions),
// or ask the harness and Apply its groups; then write each element under WriteAddress of the window
// it now belongs to. Addresses are settled only at the end of a round.
//
// A merge function must put a window together with the active one that swallowed its equal before;
// sessions do. It is not checked: contents of two windows would mix.
class ActiveWindows {
 public:
  void Add(const Window& window);

  // Ends the round by joining overlapping intervals. The cells' trigger state, pane history, holds
  // and timers are for the caller to merge as told.
  std::vector<WindowMerge> Merge();
  // Ends the round by groups decided elsewhere; windows in no group stay as they are. Nothing, and
  // nothing done, if a member is not active or is named twice, or a result is active without being
  // a member of its own group, or two groups have one result, or a group is empty.
  std::optional<std::vector<WindowMerge>> Apply(const std::vector<WindowGroup>& groups);

  // The window is gone; the caller has deleted what lay under its addresses.
  void Remove(const Window& window) { active_.erase(window); }

  bool IsActive(const Window& window) const { return active_.contains(window); }
  // The active window that contains interval `window`; nothing if it was removed.
  std::optional<Window> Current(const Window& window) const;
  // REQUIRES IsActive. Ascending; empty only for a window of the current round.
  std::span<const Window> Addresses(const Window& window) const;
  const Window& WriteAddress(const Window& window) const { return Addresses(window).front(); }

  std::vector<Window> windows() const;
  bool empty() const { return active_.empty(); }
  size_t size() const { return active_.size(); }

  void AppendTo(std::string& out) const;
  static std::optional<ActiveWindows> Parse(std::string_view in);

  bool operator==(const ActiveWindows&) const = default;

 private:
  bool CanApply(const std::vector<WindowGroup>& groups) const;
  std::optional<WindowMerge> ApplyOne(const WindowGroup& group);

  std::map<Window, std::vector<Window>> active_;  // to addresses
};

}  // namespace millrace::windowing
