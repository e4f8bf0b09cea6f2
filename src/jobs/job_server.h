// The dataflow role: jobs, their workers and the port that both speak to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/timer.h"
#include "storage/open.h"

namespace millrace::pubsub {
class Broker;
}

namespace millrace::jobs {

struct JobServerEnvironment {
  storage::Storage* storage = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;
  pubsub::Broker* broker = nullptr;  // null: role pubsub is off; jobs that use Pub/Sub are refused
  std::vector<std::string> hosts;    // addresses to listen on; the first is what workers are told
  int port = 0;                      // 0: any free one, the same on all addresses
  std::string artifact_directory;    // created when needed
};

// Open listens (calls are answered UNAVAILABLE until Start) and loads the jobs; then Replay takes
// records of kinds kJobs and kRange; then Start. Stop suspends the jobs, which go on after a
// restart.
class JobServer {
 public:
  static StatusOr<std::unique_ptr<JobServer>> Open(JobServerEnvironment environment);
  ~JobServer();
  int port() const;
  Status Replay(const storage::Record& record);
  void Start();
  void Stop();

 private:
  struct Parts;
  explicit JobServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::jobs
