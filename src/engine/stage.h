// What runs of one stage: its ranges, the bundles that failed, its counters.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/bundle.h"
#include "engine/job.h"
#include "engine/plan.h"
#include "engine/range_shard.h"
#include "engine/retry.h"
#include "engine/state.h"

namespace millrace::engine {

struct StageState {
  StageId id;
  const StageSpec* spec = nullptr;
  std::vector<std::unique_ptr<RangeShard>> ranges;
  RetryQueue retry;
  std::shared_ptr<const StatePlace> place;  // null: no state, no side inputs
  uint64_t side_ordinal = 0;                // the last commit that brought side input
  int in_flight = 0;
  size_t next_range = 0;                  // where the next cut begins
  std::optional<SteadyTime> waits_since;  // input waits although a bundle runs
  uint64_t elements_in = 0, bundles = 0, failed_bundles = 0;

  RangeShard& RangeOfKey(std::string_view key) { return *ranges[StableHash(key) % ranges.size()]; }
};

}  // namespace millrace::engine
