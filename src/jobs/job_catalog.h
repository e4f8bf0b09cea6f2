// All jobs of this server, kept in the commit log and the store: prepared ones in memory, started
// ones durable.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/task.h"
#include "jobs/job_run.h"

namespace millrace::jobs {

// A job as clients see it, also long after its end.
struct JobView {
  JobRow row;
  std::shared_ptr<EventLog> events;
};

template <typename T>
using Reply = Callback<void(StatusOr<T>)>;

// Thread-safe: calls are posted to the services' executor; replies run there. Recovery (Load,
// Replay) is single-threaded, before Start.
class JobCatalog : public storage::Checkpointed, public std::enable_shared_from_this<JobCatalog> {
 public:
  explicit JobCatalog(JobServices services) : services_(std::move(services)) {}

  Status Load();
  Status Replay(const storage::Record& record);
  void Start();
  // Jobs are suspended; they go on after a restart. Returns when that is done.
  void Stop();

  // Returns the preparation id, which will be the job's id.
  void Prepare(const api::PrepareJobRequest& request, Reply<std::string> reply);
  void Staged(const std::string& preparation_id,
              std::map<std::string, pipe::Environment> environments);
  void EnvironmentsOf(const std::string& preparation_id,
                      Reply<std::map<std::string, pipe::Environment>> reply);
  void Run(const std::string& preparation_id, Reply<std::string> reply);
  void Cancel(const std::string& job_id, Reply<State> reply);
  void Drain(const std::string& job_id, Reply<State> reply);
  void List(Callback<void(std::vector<JobView>)> reply);
  void Get(const std::string& job_id, Reply<JobView> reply);
  void GetPipeline(const std::string& job_id, Reply<pipe::Pipeline> reply);
  void Metrics(const std::string& job_id, Reply<api::MetricResults> reply);

  // storage::Checkpointed: rows changed since the last one.
  void WriteCheckpoint(Callback<void(storage::WriteBatch)> done) override;

 private:
  struct Prepared {
    std::string name;
    pipe::Pipeline pipeline;
    google::protobuf::Struct options;
    WallTime created;
  };

  Status Restore(JobRow row);
  StatusOr<std::shared_ptr<JobRun>> MakeRun(JobRow row, pipe::Pipeline pipeline);
  // Absolute rows: into the log, into the store with the next checkpoint. `done` runs on the
  // executor once they are durable.
  void Commit(storage::WriteBatch batch, Task done);
  void PersistEnd(JobRow row);
  std::string NewId(const std::string& name);
  StatusOr<JobView> Find(const std::string& job_id) const;

  const JobServices services_;
  std::map<std::string, Prepared> prepared_;
  std::map<std::string, JobRow> ended_;
  std::map<std::string, std::shared_ptr<JobRun>> running_;
  std::map<std::string, std::shared_ptr<EventLog>> ended_events_;
  std::map<std::string, JobRow> not_restored_;  // failed at this start; made durable by Start
  storage::WriteBatch unsaved_;                 // what the next checkpoint must write
  uint64_t last_uid_ = 0;
  uint64_t seq_ = 0;
  bool started_ = false, stopped_ = false;
};

}  // namespace millrace::jobs
