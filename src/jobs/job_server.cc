#include "jobs/job_server.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <utility>

#include "fmt/format.h"
#include "fnapi/fn_server.h"
#include "jobs/artifacts.h"
#include "jobs/job_catalog.h"
#include "jobs/job_service.h"
#include "net/grpc_acceptor.h"
#include "net/port_mux.h"

namespace millrace::jobs {
namespace {

constexpr auto kStopGrace = std::chrono::milliseconds(500);

std::string HostAndPort(const std::string& host, int port) {
  const std::string reachable = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
  return reachable.find(':') == std::string::npos ? fmt::format("{}:{}", reachable, port)
                                                  : fmt::format("[{}]:{}", reachable, port);
}

}  // namespace

struct JobServer::Parts {
  explicit Parts(JobServerEnvironment env)
      : environment(std::move(env)),
        executor(*environment.pool),
        store(environment.artifact_directory) {}

  JobServerEnvironment environment;
  SerialExecutor executor;
  ArtifactStore store;
  fnapi::FnServer fn_server;
  JobService jobs;
  ArtifactStaging staging{store};
  ArtifactRetrieval retrieval{store};
  net::GrpcAcceptor acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<net::PortMux> mux;
  std::shared_ptr<JobCatalog> catalog;
  std::string endpoint;
  bool stopped = false;
};

JobServer::JobServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
JobServer::~JobServer() { Stop(); }

StatusOr<std::unique_ptr<JobServer>> JobServer::Open(JobServerEnvironment environment) {
  auto parts = std::make_unique<Parts>(std::move(environment));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  parts->fn_server.Register(builder);
  builder.RegisterService(&parts->jobs);
  builder.RegisterService(&parts->staging);
  builder.RegisterService(&parts->retrieval);
  parts->acceptor.Attach(builder);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) return Internal("the gRPC server for jobs does not start");
  net::PortMux::Routes routes;
  routes.grpc = [raw = parts.get()](int fd) { raw->acceptor.Take(fd); };
  routes.http = [](int fd) { close(fd); };  // nothing here speaks HTTP/1.1
  MR_ASSIGN_OR_RETURN(parts->mux, net::PortMux::Start(parts->environment.hosts,
                                                      parts->environment.port, std::move(routes)));
  parts->endpoint = HostAndPort(parts->environment.hosts.front(), parts->mux->port());

  JobServices services;
  services.storage = parts->environment.storage;
  services.clock = parts->environment.clock;
  services.timers = parts->environment.timers;
  services.pool = parts->environment.pool;
  services.executor = &parts->executor;
  services.broker = parts->environment.broker;
  services.fn_server = &parts->fn_server;
  services.endpoint = parts->endpoint;
  services.boot_id = fmt::format("{:06x}", std::random_device{}() & 0xffffff);
  parts->catalog = std::make_shared<JobCatalog>(std::move(services));
  MR_RETURN_IF_ERROR(parts->catalog->Load());
  return std::unique_ptr<JobServer>(new JobServer(std::move(parts)));
}

int JobServer::port() const { return parts_->mux->port(); }
Status JobServer::Replay(const storage::Record& record) { return parts_->catalog->Replay(record); }

void JobServer::Start() {
  parts_->catalog->Start();
  parts_->staging.Open(parts_->catalog);
  parts_->jobs.Open(parts_->catalog, parts_->endpoint);
}

void JobServer::Stop() {
  if (std::exchange(parts_->stopped, true)) return;
  if (parts_->mux != nullptr) parts_->mux->Stop();
  if (parts_->catalog != nullptr) parts_->catalog->Stop();
  if (parts_->server != nullptr) {
    parts_->server->Shutdown(std::chrono::system_clock::now() + kStopGrace);
    parts_->server->Wait();
  }
}

}  // namespace millrace::jobs
