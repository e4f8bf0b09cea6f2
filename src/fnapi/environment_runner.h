// Runs the bundles of one environment of one job: asks the environment's worker pool for workers,
// spreads bundles over them, replaces those that are lost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/timer.h"
#include "engine/bundle_runner.h"
#include "fnapi/fn_server.h"
#include "fnapi/stage_program.h"

namespace millrace::fnapi {

struct EnvironmentOptions {
  std::string pool_url;  // BeamFnExternalWorkerPool of the environment
  std::map<std::string, std::string> params;
  std::string worker_id_prefix;  // unique over jobs and restarts
  int workers = 1;
  int bundles_per_worker =
      3;                 // more than one keeps a Python worker busy while the next bundle travels
  std::string endpoint;  // of FnServer, as workers reach it
  fn::ProvisionInfo provision;
  Duration connect_timeout =
      std::chrono::seconds(60);  // from StartWorker's answer to the control stream
};

struct EnvironmentCallbacks {
  // No worker since `since_start` of trouble; called at each failed try. The job decides how long
  // to bear it.
  std::function<void(Duration trouble, Status why)> unreachable;
  std::function<void(const fn::LogEntry&)> log;
};

struct EnvironmentServices {
  FnServer* server = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;
};

// Thread-safe. Destroy only after Stop.
class EnvironmentRunner : public engine::BundleRunner {
 public:
  static std::shared_ptr<EnvironmentRunner> Make(
      EnvironmentOptions options, EnvironmentCallbacks callbacks, EnvironmentServices services,
      std::vector<std::shared_ptr<const StageProgram>> programs);
  // Begins to ask for workers.
  virtual void Start() = 0;
};

}  // namespace millrace::fnapi
