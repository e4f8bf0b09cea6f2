#include "windowing/sessions.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "windowing/wire.h"

namespace millrace::windowing {
namespace {

void AppendRecord(std::string& out, const Window& window) {
  out.push_back(static_cast<char>(window.kind));
  AppendInstant(out, window.start);
  AppendInstant(out, window.end);
  AppendBytes(out, window.custom);
}

bool ParseRecord(std::string_view& in, Window* out) {
  if (in.empty() || static_cast<uint8_t>(in[0]) > static_cast<uint8_t>(WindowKind::kCustom)) {
    return false;
  }
  out->kind = static_cast<WindowKind>(in[0]);
  in.remove_prefix(1);
  std::string_view custom;
  if (!ParseInstant(in, &out->start) || !ParseInstant(in, &out->end) || !ParseBytes(in, &custom)) {
    return false;
  }
  out->custom = custom;
  return true;
}

}  // namespace

std::vector<WindowGroup> GroupSessions(std::vector<Window> windows) {
  std::sort(windows.begin(), windows.end());
  std::vector<WindowGroup> groups;
  for (Window& window : windows) {
    if (groups.empty() || window.start >= groups.back().result.end) {
      groups.push_back({window, {}});
    } else {
      groups.back().result.end = std::max(groups.back().result.end, window.end);
    }
    groups.back().members.push_back(std::move(window));
  }
  return groups;
}

void ActiveWindows::Add(const Window& window) { active_.try_emplace(window); }

std::vector<WindowMerge> ActiveWindows::Merge() {
  // Groups of all active windows always fit the active windows.
  return Apply(GroupSessions(windows())).value_or(std::vector<WindowMerge>());
}

bool ActiveWindows::CanApply(const std::vector<WindowGroup>& groups) const {
  std::set<Window> members;
  std::set<Window> results;
  for (const WindowGroup& group : groups) {
    if (group.members.empty() || !results.insert(group.result).second) return false;
    for (const Window& member : group.members) {
      if (!active_.contains(member) || !members.insert(member).second) return false;
    }
    if (active_.contains(group.result) && std::find(group.members.begin(), group.members.end(),
                                                    group.result) == group.members.end()) {
      return false;
    }
  }
  return true;
}

std::optional<WindowMerge> ActiveWindows::ApplyOne(const WindowGroup& group) {
  WindowMerge merge;
  merge.result = group.result;
  std::vector<Window> addresses;
  for (const Window& member : group.members) {
    const auto it = active_.find(member);
    if (!it->second.empty()) {
      if (member == group.result) {
        merge.result_is_merged = true;
      } else {
        merge.merged.push_back(member);
      }
      std::move(it->second.begin(), it->second.end(), std::back_inserter(addresses));
    }
    active_.erase(it);
  }
  std::sort(addresses.begin(), addresses.end());
  if (addresses.empty()) addresses.push_back(group.result);
  active_[group.result] = std::move(addresses);
  if (merge.merged.empty()) return std::nullopt;
  std::sort(merge.merged.begin(), merge.merged.end());
  if (merge.result_is_merged) merge.merged.insert(merge.merged.begin(), group.result);
  return merge;
}

std::optional<std::vector<WindowMerge>> ActiveWindows::Apply(
    const std::vector<WindowGroup>& groups) {
  if (!CanApply(groups)) return std::nullopt;
  std::vector<WindowMerge> merges;
  for (const WindowGroup& group : groups) {
    if (std::optional<WindowMerge> merge = ApplyOne(group)) merges.push_back(*std::move(merge));
  }
  for (auto& [window, addresses] : active_) {
    if (addresses.empty()) addresses.push_back(window);
  }
  return merges;
}

std::optional<Window> ActiveWindows::Current(const Window& window) const {
  auto it = active_.upper_bound(
      Window{window.kind, window.start, std::numeric_limits<Millis>::max(), {}});
  if (it == active_.begin()) return std::nullopt;
  --it;
  const Window& candidate = it->first;
  if (candidate.kind != window.kind || candidate.end < window.end) return std::nullopt;
  return candidate;
}

std::span<const Window> ActiveWindows::Addresses(const Window& window) const {
  return active_.find(window)->second;
}

std::vector<Window> ActiveWindows::windows() const {
  std::vector<Window> windows;
  windows.reserve(active_.size());
  for (const auto& [window, addresses] : active_) windows.push_back(window);
  return windows;
}

void ActiveWindows::AppendTo(std::string& out) const {
  for (const auto& [window, addresses] : active_) {
    AppendRecord(out, window);
    AppendVarint(out, static_cast<uint64_t>(addresses.size()));
    for (const Window& address : addresses) AppendRecord(out, address);
  }
}

std::optional<ActiveWindows> ActiveWindows::Parse(std::string_view in) {
  ActiveWindows active;
  while (!in.empty()) {
    Window window;
    uint64_t count = 0;
    if (!ParseRecord(in, &window) || !ParseVarint(in, &count) || count > in.size() / 18) {
      return std::nullopt;
    }
    std::vector<Window> addresses(count);
    for (Window& address : addresses) {
      if (!ParseRecord(in, &address)) return std::nullopt;
    }
    if (!active.active_.emplace(std::move(window), std::move(addresses)).second) {
      return std::nullopt;
    }
  }
  return active;
}

}  // namespace millrace::windowing
