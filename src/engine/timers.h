// The timers of one range that are set and have not fired.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/bundle_runner.h"
#include "engine/min_tracker.h"
#include "storage/store.h"

namespace millrace::engine {

// One timer an identity (transform, family, key, tag, window); the last write wins.
// Single-threaded; owned by a range.
class TimerTable {
 public:
  explicit TimerTable(std::string row_prefix) : row_prefix_(std::move(row_prefix)) {}

  // Sets or clears. `event_time`: by the family; else processing time.
  void Apply(const Timer& change, bool event_time);
  // Keys that have come to have due timers since the last call, those of timers set when already
  // due included.
  std::vector<std::string> Advance(windowing::Millis input_watermark, windowing::Millis now);
  // All due timers of the key with its earliest due time; event time goes before processing time.
  // They stay until cleared.
  std::vector<Timer> DueOf(const std::string& key) const;

  std::optional<windowing::Millis> MinHold() const { return holds_.Min(); }
  std::optional<windowing::Millis> NextProcessing() const;
  bool empty() const { return entries_.empty(); }

  void Checkpoint(storage::WriteBatch& batch);
  Status LoadRows(storage::Store& store);

 private:
  struct Entry {
    Timer timer;
    bool event_time = true;
    bool has_row = false;
  };
  using Order = std::set<std::pair<windowing::Millis, std::string>>;  // fire time, identity
  struct KeyTimers {
    Order event, processing;
  };
  void Remove(const std::string& identity, const Entry& entry);

  const std::string row_prefix_;
  absl::flat_hash_map<std::string, Entry> entries_;
  absl::flat_hash_map<std::string, KeyTimers> by_key_;
  Order event_, processing_;
  MinTracker holds_;
  std::set<std::string> dirty_;    // identities
  std::set<std::string> removed_;  // identities with rows
  std::vector<std::string> new_keys_;
  windowing::Millis event_upto_ = INT64_MIN, processing_upto_ = INT64_MIN;
};

}  // namespace millrace::engine
