// Runs the bundles of a fused stage: in an SDK harness (fnapi/) or natively. Needed by the engine,
// implemented elsewhere.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "engine/element.h"
#include "engine/plan.h"

namespace millrace::engine {

// A timer as set or fired. Identity: transform, family, key, tag, window.
struct Timer {
  std::string transform, family;
  std::string key;  // encoded
  std::string tag;
  windowing::Window window;
  bool clear = false;
  windowing::Millis fire = 0;
  windowing::Millis hold = 0;  // > kMaxTimestamp: no hold
  windowing::Pane pane;
};

enum class StateKind : uint8_t {
  kBag,
  kMultimap,
  kMultimapKeys,
  kMultimapEntries,
  kOrderedList,  // user state
  kIterableSideInput,
  kMultimapSideInput,
  kMultimapKeysSideInput,
  kMultimapKeysValuesSideInput,
  kRunner,  // rest of a state-backed iterable
};

struct StateKey {
  StateKind kind = StateKind::kBag;
  std::string transform;
  std::string name;                        // state id or side input id
  std::string window;                      // encoded
  std::string key;                         // encoded; kRunner: the token
  std::string map_key;                     // kMultimap
  int64_t range_start = 0, range_end = 0;  // kOrderedList
};

struct StatePage {
  std::string data;          // concatenated values; ends at the border of an append
  std::string continuation;  // empty: the last page
};

// State as one bundle sees it: the committed view of its first read plus its own changes.
// Thread-safe; calls for one key are answered in order. Dead once the bundle's result was given:
// later calls fail.
class BundleState {
 public:
  virtual ~BundleState() = default;
  virtual void Get(StateKey key, std::string continuation,
                   Callback<void(StatusOr<StatePage>)> done) = 0;
  virtual void Append(StateKey key, std::string data, Callback<void(Status)> done) = 0;
  virtual void Clear(StateKey key, Callback<void(Status)> done) = 0;
};

struct BundleRequest {
  uint64_t attempt = 0;  // never used twice over the life of a job, restarts included; a late
                         // answer commits nothing
  StageId stage;
  std::vector<SharedBytes>
      data;  // encoded windowed values in order; borders of pieces are borders of elements
  size_t element_count = 0;
  std::vector<Timer> timers;  // either these or elements for one key
  std::string cache_token;    // of user state; empty: no caching
  std::shared_ptr<BundleState> state;
};

// An unprocessed rest (splittable DoFn): comes back to the same stage after `delay`.
struct Residual {
  std::string transform, input;
  std::string element;  // encoded windowed value
  Duration delay{};
  std::map<std::string, windowing::Millis>
      output_watermarks;  // by local output name; a missing one holds at the minimum
};

// A counter or the like, as the SDK reports it; merged by the engine's metrics by urn and labels.
struct Metric {
  std::string urn, type, payload;
  std::map<std::string, std::string> labels;
};

struct BundleResult {
  Status status;  // not OK: nothing of the rest counts; the message is the SDK's text
  std::vector<Chunk> outputs;
  std::vector<Timer> timers;       // last write per identity wins
  std::optional<size_t> consumed;  // a channel split: only the first so many elements were taken
  std::vector<Residual> residuals;
  std::vector<Metric> metrics;  // totals of this bundle
  bool wants_finalization = false;
};

// Serves the stages of one environment of one job. Thread-safe; callbacks may come on any thread.
class BundleRunner {
 public:
  virtual ~BundleRunner() = default;
  // How many bundles may be in flight now: 0 while no worker is connected. `changed` (set once)
  // runs on every change.
  virtual int Slots() const = 0;
  virtual void OnSlotsChanged(Task changed) = 0;  // called repeatedly
  // `done` is called exactly once, also when the worker dies (UNAVAILABLE: says nothing about the
  // elements).
  virtual void Run(BundleRequest request, Callback<void(BundleResult)> done) = 0;
  // After the commit of a bundle that wants it; best effort.
  virtual void Finalize(uint64_t attempt) = 0;
  // Gives up what is in flight: every `done` is called with CANCELLED.
  virtual void Stop() = 0;
};

}  // namespace millrace::engine
