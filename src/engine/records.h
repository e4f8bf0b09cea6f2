// What a bundle's commit says: the durable forms of the engine. A bundle over several ranges is one
// record for each, appended together; the first of them, of the lead range, also carries what the
// bundle gave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/bundle_runner.h"
#include "engine/chunk.h"
#include "engine/hash.h"
#include "windowing/pane_rules.h"
#include "windowing/trigger.h"

namespace millrace::engine {

// Elements first … first + count - 1 of a chunk of the range.
struct ElementRun {
  uint64_t chunk = 0;
  uint32_t first = 0, count = 0;
  bool operator==(const ElementRun&) const = default;
};

// A pane was emitted, or a cell was collected.
struct CellFired {
  std::string key;
  windowing::Window window;
  uint64_t upto_chunk =
      0;  // values up to this chunk number were in it (and are gone, unless panes accumulate)
  bool erase = false;  // nothing is left of the cell
  windowing::PaneHistory history;
  windowing::TriggerState trigger;
};

struct ResidualRecord {
  std::string transform, input;
  std::string element;
  int64_t delay_micros = 0;
  windowing::Millis hold = windowing::kMinTimestamp;
};

struct BundleRecord {
  windowing::Millis input_watermark = windowing::kMinTimestamp,
                    output_watermark = windowing::kMinTimestamp;
  std::vector<ElementRun> consumed;
  std::vector<CellFired> fired;
  std::vector<uint64_t> residuals_done;
  int64_t wall_micros = 0;           // of the commit, if there are ids
  std::vector<IdHash> ids;           // of source elements
  std::vector<uint64_t> acked_runs;  // runs of ids whose acks are known to be durable
  std::vector<PackedChunk> outputs;
  std::vector<ResidualRecord> residuals;
  std::vector<Timer> timers;    // changes, in order
  std::string state;            // storage::WriteBatch, serialised
  std::vector<Metric> metrics;  // deltas that survive a restart

  std::string Serialize() const;
  static StatusOr<BundleRecord> Parse(const SharedBytes& payload);
};

// Of the job as a whole: it was started.
struct StartRecord {
  uint64_t epoch = 0;
  std::string Serialize() const;
  static StatusOr<StartRecord> Parse(std::string_view payload);
};

void AppendTimerTo(std::string& out, const Timer& timer);
bool ParseTimerFrom(storage::ByteReader& in, Timer* out);
void AppendMetricTo(std::string& out, const Metric& metric);
bool ParseMetricFrom(storage::ByteReader& in, Metric* out);

}  // namespace millrace::engine
