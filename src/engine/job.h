// One running job: the engine's surface. jobs/ makes one from a plan, feeds it its records at
// recovery, starts it and listens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/timer.h"
#include "engine/bundle_runner.h"
#include "engine/faults.h"
#include "engine/plan.h"
#include "engine/sink.h"
#include "engine/source.h"
#include "storage/open.h"

namespace millrace::engine {

using JobUid = StrongId<struct JobUidTag>;  // below 2^40: part of shard uids

struct JobOptions {
  int ranges_per_stage = 4;
  size_t bundle_elements_max = 5000;
  size_t bundle_bytes_max = 8 << 20;
  int bounded_attempts = 4;  // option bundle_retries
  Duration dedup_window = std::chrono::minutes(10);
  Duration park_min = std::chrono::seconds(1), park_max = std::chrono::seconds(60);
  Faults faults;  // tests only
};

enum class Importance : uint8_t { kDebug, kDetailed, kBasic, kWarning, kError };

// Called on the job's executor; must only hand over.
class JobListener {
 public:
  virtual ~JobListener() = default;
  // The end: OK (all watermarks at the maximum; drained when drain was asked for), CANCELLED, or
  // the failure.
  virtual void OnFinished(Status status) = 0;
  virtual void OnMessage(Importance importance, std::string text) = 0;
};

struct JobEnvironment {
  storage::Storage* storage = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;
  std::map<std::string, std::shared_ptr<BundleRunner>> runners;  // by StageSpec::environment
  std::map<std::string, SourceFactory> sources;                  // by StageSpec::native_kind
  std::map<std::string, SinkFactory> sinks;
  std::shared_ptr<JobListener> listener;
};

struct StageProgress {
  std::string name;
  windowing::Millis input_watermark = 0, output_watermark = 0;
  uint64_t pending_elements = 0;
  uint64_t elements_in = 0, bundles = 0, failed_bundles = 0;
  size_t parked_keys = 0;
  int in_flight = 0;
};

class Job {
 public:
  // `fresh`: no state of this uid exists. Otherwise LoadView reads the store and Replay takes its
  // records before Start.
  static StatusOr<std::shared_ptr<Job>> Make(JobUid uid, std::string name,
                                             std::shared_ptr<const Plan> plan, JobOptions options,
                                             JobEnvironment environment);
  virtual ~Job() = default;
  // Recovery, single-threaded, before Start.
  virtual Status LoadView() = 0;
  virtual Status Replay(const storage::Record& record) = 0;
  virtual void Start() = 0;

  // Any thread. Cancel stops bundles, releases sources' elements, then OnFinished(CANCELLED).
  virtual void Cancel() = 0;
  virtual void Drain() = 0;
  // Stops without an end: the process goes down, the job goes on after the restart. Returns when
  // nothing calls out any more.
  virtual void Suspend() = 0;

  // Merged over committed bundles; element counts per collection included
  // (beam:metric:element_count:v1, label PCOLLECTION).
  virtual void Metrics(
      Callback<void(std::vector<Metric> attempted, std::vector<Metric> committed)> done) = 0;
  virtual void Progress(Callback<void(std::vector<StageProgress>)> done) = 0;

  // Removes all durable state of a job that has ended.
  static Status Purge(storage::Storage& storage, JobUid uid);

  // Which job a range record belongs to.
  static JobUid OwnerOf(const storage::ShardId& shard);
};

}  // namespace millrace::engine
