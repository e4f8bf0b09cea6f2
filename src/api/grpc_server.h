// The gRPC server of the Pub/Sub port: services, health, reflection and the settings that official
// clients rely on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "api/method_table.h"
#include "api/rpc_service.h"
#include "api/streaming_pull_session.h"
#include "base/clock.h"
#include "base/task.h"
#include "net/grpc_acceptor.h"
#include "pubsub/broker.h"

namespace millrace::api {

// Serves connections that are handed to it; it listens nowhere. Owned by whoever wires the process.
class GrpcServer {
 public:
  // `broker` and `table` outlive the server.
  GrpcServer(pubsub::Broker& broker, const MethodTable& table);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Serves an accepted socket; owns the descriptor. Any thread.
  void Take(int fd) { acceptor_.Take(fd); }
  // What the gRPC health service answers.
  void SetServing(bool serving);
  // Says GOAWAY, then ends the streams with UNAVAILABLE and runs `end_calls` (which lets the broker
  // answer what waits), and cancels what is left after `grace`. Blocks; idempotent.
  void Stop(Duration grace, FunctionRef<void()> end_calls = [] {});

 private:
  StreamingPullSessions sessions_;
  std::vector<std::unique_ptr<RpcService>> services_;
  net::GrpcAcceptor acceptor_;
  std::unique_ptr<grpc::Server> server_;
  bool stopped_ = false;
};

}  // namespace millrace::api
