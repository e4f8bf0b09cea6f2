// Client of the worker pool that an SDK offers (BeamFnExternalWorkerPool).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/task.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.pb.h"

namespace millrace::fnapi {

namespace fn = org::apache::beam::model::fn_execution::v1;

// Thread-safe. Answers come on gRPC threads, within the deadline.
class WorkerPool {
 public:
  explicit WorkerPool(const std::string& url);
  ~WorkerPool();
  void Start(fn::StartWorkerRequest request, Callback<void(Status)> done);
  // Best effort.
  void Stop(const std::string& worker_id, Task done);

 private:
  struct Stub;
  std::shared_ptr<Stub> stub_;
};

}  // namespace millrace::fnapi
