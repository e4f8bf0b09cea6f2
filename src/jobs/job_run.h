// One job's life: from its plan to its terminal state. Starts its environments and its engine,
// turns what they tell into states and messages, cleans up at the end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/timer.h"
#include "engine/job.h"
#include "fnapi/environment_runner.h"
#include "fnapi/fn_server.h"
#include "jobs/event_log.h"
#include "jobs/job_rows.h"
#include "jobs/options.h"
#include "jobs/types.h"
#include "planner/planner.h"
#include "storage/open.h"

namespace millrace::pubsub {
class Broker;
}

namespace millrace::jobs {

// All outlive the jobs.
struct JobServices {
  storage::Storage* storage = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;
  SerialExecutor* executor = nullptr;  // of the job catalogue; every JobRun lives on it
  pubsub::Broker* broker = nullptr;    // null: role pubsub is off
  fnapi::FnServer* fn_server = nullptr;
  std::string endpoint;  // of this server, as workers reach it
  std::string boot_id;   // differs between starts: worker ids are unique over restarts
};

// Checks that a pipeline can be run here, without starting anything.
StatusOr<planner::PlannedPipeline> PlanJob(const pipe::Pipeline& pipeline,
                                           const JobServices& services);

// Lives on the catalogue's executor, save where noted.
class JobRun : public engine::JobListener, public std::enable_shared_from_this<JobRun> {
 public:
  // `ended` is called once, on the executor, with the row of the terminal state; it makes that
  // durable, then calls Ended().
  static StatusOr<std::shared_ptr<JobRun>> Make(JobRow row, pipe::Pipeline pipeline,
                                                JobServices services,
                                                std::function<void(JobRow)> ended);

  // Recovery, before Start.
  Status LoadView() { return engine_->LoadView(); }
  Status Replay(const storage::Record& record) { return engine_->Replay(record); }
  void RestoreDrain() { row_.drain = true; }  // it was asked for in an earlier life

  void Start();
  void Cancel();
  void Drain();
  // The process goes down; the job goes on after the restart. Waits for what is in flight.
  void Suspend();
  // The terminal state is durable: tells it, stops workers, removes the job's data.
  void Ended();
  // Removes the engine's data of a job that has ended.
  static void Purge(const JobServices& services, uint64_t uid);

  const JobRow& row() const { return row_; }
  const pipe::Pipeline& pipeline() const { return pipeline_; }
  const std::shared_ptr<EventLog>& events() const { return events_; }
  void Metrics(Callback<void(api::MetricResults)> done);

  // engine::JobListener, on the engine's executor.
  void OnFinished(Status status) override;
  void OnMessage(engine::Importance importance, std::string text) override;

 private:
  JobRun(JobRow row, pipe::Pipeline pipeline, JobServices services,
         std::function<void(JobRow)> ended);

  Status Build(planner::PlannedPipeline planned);
  StatusOr<std::shared_ptr<fnapi::EnvironmentRunner>> MakeEnvironment(const std::string& id);
  engine::SourceFactory MakeSourceFactory() const;
  engine::SinkFactory MakeSinkFactory(bool dynamic) const;
  void Unreachable(Duration trouble, const Status& why);
  void Fail(Status why);
  void Finished(Status status);
  void End(State state, std::string error, api::MetricResults metrics);
  void DeleteOwnSubscriptions();

  JobRow row_;
  const pipe::Pipeline pipeline_;
  const JobServices services_;
  const std::function<void(JobRow)> ended_;
  Options options_;
  planner::PlannedPipeline planned_;
  const std::shared_ptr<EventLog> events_ = std::make_shared<EventLog>();
  std::vector<std::shared_ptr<fnapi::EnvironmentRunner>> environments_;
  std::shared_ptr<engine::Job> engine_;
  Status failure_;  // why the job was stopped from here
  SteadyTime told_unreachable_{INT64_MIN / 2};
  bool cancelled_ = false, finished_ = false;
};

}  // namespace millrace::jobs
