// Ids that the compiler tells apart: using TopicUid = StrongId<struct TopicUidTag>;
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace millrace {

template <typename Tag, typename T = uint64_t>
struct StrongId {
  T value{};
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value);
  }
};

}  // namespace millrace

template <typename Tag, typename T>
struct std::hash<millrace::StrongId<Tag, T>> {
  size_t operator()(const millrace::StrongId<Tag, T>& id) const { return std::hash<T>()(id.value); }
};
