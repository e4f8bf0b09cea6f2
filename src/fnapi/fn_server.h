// The Fn API services of all workers of all jobs on one port: which worker calls is told by its
// `worker_id` header.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "fnapi/harness.h"
#include "org/apache/beam/model/fn_execution/v1/beam_provision_api.pb.h"

namespace millrace::fnapi {

// Thread-safe. Outlives the gRPC server it is registered with.
class FnServer {
 public:
  FnServer();
  ~FnServer();
  // Control, data, state, logging, provision.
  void Register(grpc::ServerBuilder& builder);

  // From now on streams with this worker's id go to `harness`; provision answers `info`.
  void Add(std::shared_ptr<Harness> harness, fn::ProvisionInfo info);
  void Remove(const std::string& worker_id);

 private:
  struct Services;
  std::unique_ptr<Services> services_;
};

}  // namespace millrace::fnapi
