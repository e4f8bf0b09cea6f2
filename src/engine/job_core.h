// Wires the parts of a running job together.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/bundle_commit.h"
#include "engine/dispatcher.h"
#include "engine/job.h"
#include "engine/messages.h"
#include "engine/metrics.h"
#include "engine/progress_keeper.h"
#include "engine/sink_loop.h"
#include "engine/source_loop.h"
#include "engine/stage.h"
#include "storage/checkpoint.h"

namespace millrace::engine {

// Everything runs on one serial executor; what others call or answer is posted there. Owned by
// jobs/.
class JobCore : public Job,
                public storage::Checkpointed,
                public std::enable_shared_from_this<JobCore> {
 public:
  JobCore(JobUid uid, std::string name, std::shared_ptr<const Plan> plan, JobOptions options,
          JobEnvironment environment);
  ~JobCore() override;
  // After construction, when shared_from_this works.
  void Wire();

  Status LoadView() override;
  Status Replay(const storage::Record& record) override;
  void Start() override;
  void Cancel() override;
  void Drain() override;
  void Suspend() override;
  void Metrics(Callback<void(std::vector<Metric>, std::vector<Metric>)> done) override;
  void Progress(Callback<void(std::vector<StageProgress>)> done) override;
  void WriteCheckpoint(Callback<void(storage::WriteBatch)> done) override;

 private:
  enum class Phase : uint8_t { kNew, kStarting, kRunning, kEnding, kEnded, kSuspended };

  // Posts `task` when called, for once or for ever.
  Task OnExecutor(Task task);
  Task OnExecutorMany(std::function<void()> task);
  std::function<void(Status)> Reporter();
  void AppendRows(storage::WriteBatch& batch);
  // A callback that may come on any thread and runs here, or not at all once the job is gone.
  template <typename T>
  Callback<void(T)> Here(Callback<void(T)> callback);

  void MakeDispatcher();
  void Begin();
  Status OpenSources();
  Status OpenSinks();
  // Posts one Turn, if none is waiting.
  void Wake();
  void Turn();
  void AdvanceWatermarks();
  void SetTimer();
  std::optional<SteadyTime> NextTime() const;
  bool IsDone() const;
  bool IsBehind() const;
  void MaySpill();
  void End(Status status);
  void StopParts();
  void ReleaseSources();
  void AppendStart(Task on_durable);

  const JobUid uid_;
  const std::string name_;
  const std::shared_ptr<const Plan> plan_;
  const JobOptions options_;
  JobEnvironment environment_;
  const std::shared_ptr<SerialExecutor> executor_;

  std::vector<std::unique_ptr<StageState>> stages_;
  ProgressKeeper keeper_;
  MetricTable committed_, failed_;
  Messages messages_;
  std::unique_ptr<BundleCommit> commit_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::unique_ptr<SourceLoop>> source_loops_;
  std::vector<std::unique_ptr<SinkLoop>> sink_loops_;

  Phase phase_ = Phase::kNew;
  bool drain_asked_ = false, loaded_ = false;
  uint64_t epoch_ = 0, job_seq_ = 0;
  bool turn_posted_ = false;
  SteadyTime spill_at_{};
  TimerId timer_ = 0;
  SteadyTime timer_at_ = SteadyTime::Max();
};

}  // namespace millrace::engine
