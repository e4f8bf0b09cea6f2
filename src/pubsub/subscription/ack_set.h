// Which of 65,536 neighbouring offsets are acked: sorted runs while these are few, a bitmap beyond.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pubsub {

// A value; not thread-safe. Costs 4 bytes a run, never more than 8 KB. Positions are 0 … 65,535.
class AckSet {
 public:
  static constexpr uint32_t kSize = 65536;

  AckSet() = default;
  AckSet(const AckSet& other);
  AckSet& operator=(const AckSet&) = delete;

  bool Contains(uint32_t position) const;
  // Adds [first, end). Returns how many were new.
  uint32_t Add(uint32_t first, uint32_t end);
  // First position ≥ from that is (not) in the set; kSize if there is none.
  uint32_t NextIn(uint32_t from) const;
  uint32_t NextOut(uint32_t from) const;
  // Members of [first, end).
  uint32_t Count(uint32_t first, uint32_t end) const;
  uint32_t size() const { return size_; }

  void Serialize(std::string* out) const;
  // False: malformed; then the set is unspecified.
  bool Parse(std::string_view bytes);

 private:
  struct Run {
    uint16_t first, last;  // both inclusive
  };
  using Words = std::array<uint64_t, kSize / 64>;
  static constexpr size_t kRunsMax =
      1024;  // 4 KB: beyond that the bitmap is the better use of memory

  // First run whose last is ≥ position.
  size_t FindRun(uint32_t position) const;
  uint32_t AddToRuns(uint32_t first, uint32_t last);
  uint32_t AddToBitmap(uint32_t first, uint32_t last);
  void BecomeBitmap();

  uint32_t size_ = 0;
  std::vector<Run> runs_;  // apart from each other, ascending; unused once there is a bitmap
  std::unique_ptr<Words> bitmap_;
};

}  // namespace millrace::pubsub
