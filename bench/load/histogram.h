// A log-linear histogram of nanoseconds: 128 buckets per power of two (under 1 % error), fixed
// memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace millrace::load {

class Histogram {
 public:
  Histogram() : counts_(kSub * 50, 0) {}

  void Add(uint64_t ns, uint64_t n = 1) {
    counts_[std::min<size_t>(Index(ns), counts_.size() - 1)] += n;
    total_ += n;
    max_ = std::max(max_, ns);
    sum_ += static_cast<double>(ns) * static_cast<double>(n);
  }
  void Merge(const Histogram& o) {
    for (size_t i = 0; i < counts_.size(); i++) counts_[i] += o.counts_[i];
    total_ += o.total_;
    max_ = std::max(max_, o.max_);
    sum_ += o.sum_;
  }
  uint64_t total() const { return total_; }
  double max_ms() const { return static_cast<double>(max_) / 1e6; }
  double mean_ms() const { return total_ ? sum_ / static_cast<double>(total_) / 1e6 : 0; }
  double quantile_ms(double q) const {
    if (!total_) return 0;
    uint64_t want = static_cast<uint64_t>(q * static_cast<double>(total_));
    if (want >= total_) want = total_ - 1;
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); i++) {
      seen += counts_[i];
      if (seen > want) return std::min(static_cast<double>(Value(i)) / 1e6, max_ms());
    }
    return max_ms();
  }

 private:
  static constexpr size_t kSub = 128;
  static size_t Index(uint64_t v) {
    if (v < kSub) return v;
    int shift = std::bit_width(v) - 8;  // v >> shift lies in [128, 255]
    return static_cast<size_t>(shift + 1) * kSub + ((v >> shift) - kSub);
  }
  static uint64_t Value(size_t i) {
    if (i < kSub) return i;
    uint64_t shift = i / kSub - 1;
    return ((i % kSub + kSub) << shift) + ((uint64_t{1} << shift) >> 1);
  }
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0, max_ = 0;
  double sum_ = 0;
};

}  // namespace millrace::load
