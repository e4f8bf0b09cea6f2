// The parts of the process put together: storage, broker, doors. Wiring only.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "api/grpc_server.h"
#include "api/method_table.h"
#include "api/rest_router.h"
#include "apps/millraced/options.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/timer.h"
#include "jobs/job_server.h"
#include "net/http_server.h"
#include "net/port_mux.h"
#include "pubsub/broker.h"
#include "storage/open.h"

namespace millrace::apps {

// Made, served and stopped by one thread, main's. What any part does is that part's business.
class Server {
 public:
  // Recovers what the data directory holds and serves. An error is one sentence that says what to
  // do.
  static StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  ~Server();

  // "ready pubsub=HOST:PORT dataflow=HOST:PORT http=HOST:PORT"; "-" for a role that is off.
  std::string ReadyLine() const;
  // Refuses new work, answers clients, writes a last checkpoint (never one of a recovery that
  // failed). Idempotent.
  void Stop();

 private:
  explicit Server(ServerOptions options);
  Status OpenStorage();
  Status StartHttp();
  Status OpenJobs();
  Status Recover();
  Status StartPubsub();
  void HandleHttp(net::HttpRequest request, net::HttpResponder responder);

  const ServerOptions options_;
  SystemClock clock_;
  // In the order of need; destroyed the other way round.
  std::unique_ptr<ThreadPool> pool_;      // shards
  std::unique_ptr<ThreadPool> blocking_;  // work that waits for the disk
  std::unique_ptr<ThreadTimers> timers_;
  std::unique_ptr<storage::Storage> storage_;
  std::unique_ptr<pubsub::Broker> broker_;
  std::unique_ptr<jobs::JobServer> jobs_;
  api::MethodTable methods_;
  std::unique_ptr<api::RestRouter> rest_router_;
  std::unique_ptr<net::HttpServer> rest_;
  std::unique_ptr<api::GrpcServer> grpc_;
  std::unique_ptr<net::PortMux> pubsub_port_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<net::PortMux> http_port_;
  std::atomic<bool> ready_ = false;
  bool recovered_ = false;  // every record has reached its owner
  bool stopped_ = false;
};

}  // namespace millrace::apps
