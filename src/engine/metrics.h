// Sums up what bundles report.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/bundle_runner.h"
#include "storage/encoding.h"

namespace millrace::engine {

inline constexpr std::string_view kElementCountUrn = "beam:metric:element_count:v1";
inline constexpr std::string_view kSumInt64Type = "beam:metrics:sum_int64:v1";

// One value a (urn, labels), merged by type: sums add, distributions add and take minima and
// maxima, latest goes by time, sets unite; of a type it cannot merge (a trie, a histogram) the
// newest value stands. Single-threaded.
class MetricTable {
 public:
  void Merge(const Metric& metric);
  // Elements that came into a collection, counted by the engine.
  void Count(const std::string& collection, int64_t elements);
  std::vector<Metric> Report() const;

  void AppendTo(std::string& out) const;
  bool Parse(std::string_view in);

 private:
  using Key = std::pair<std::string, std::map<std::string, std::string>>;
  std::map<Key, Metric> metrics_;
};

// True if a restarted job must remember it: users' own metrics, and counts the engine cannot make
// itself.
bool IsDurable(const Metric& metric);

}  // namespace millrace::engine
