#include "apps/millraced/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "api/publisher_service.h"
#include "api/subscriber_service.h"
#include "apps/millraced/process_metrics.h"

namespace millrace::apps {
namespace {

using std::chrono::milliseconds;
using storage::ShardKind;

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

// Of jobs' files. What is kept in memory only still needs a folder for them while the process runs.
std::string ArtifactDirectory(const ServerOptions& options) {
  std::filesystem::path folder = options.in_memory ? std::filesystem::temp_directory_path() /
                                                         fmt::format("millrace-{}", getpid())
                                                   : std::filesystem::path(options.data_dir);
  return folder / "artifacts";
}

uint64_t RandomSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

void SendText(net::HttpResponder& responder, int status, std::string text,
              const char* type = "text/plain; charset=UTF-8") {
  net::HttpResponse response;
  response.status = status;
  response.content_type = type;
  response.body = std::move(text);
  responder.Send(std::move(response));
}

}  // namespace

Server::Server(ServerOptions options) : options_(std::move(options)) {
  int cores = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  pool_ = std::make_unique<ThreadPool>(cores, "shards");
  blocking_ = std::make_unique<ThreadPool>(cores, "blocking");
  timers_ = std::make_unique<ThreadTimers>(clock_);
}

Server::~Server() { Stop(); }

StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Server> server(new Server(options));
  MR_RETURN_IF_ERROR(server->OpenStorage());
  MR_RETURN_IF_ERROR(server->StartHttp());
  MR_RETURN_IF_ERROR(server->Recover());
  MR_RETURN_IF_ERROR(server->StartPubsub());
  server->ready_ = true;
  for (const std::string& address : options.listen) {
    if (!IsLoopback(address)) MR_LOG(kWarning, "serving {} without authentication", address);
  }
  return server;
}

Status Server::OpenStorage() {
  if (options_.in_memory) {
    storage_ = storage::OpenInMemory();
    return OkStatus();
  }
  storage::OpenOptions open;
  open.directory = options_.data_dir;
  open.durability = options_.durability;
  open.min_free_bytes = options_.min_free_bytes;
  MR_ASSIGN_OR_RETURN(storage_, storage::OpenDirectory(open));
  return OkStatus();
}

// Before recovery, so that a long one can be watched: alive, but not ready.
Status Server::StartHttp() {
  http_ = std::make_unique<net::HttpServer>(
      net::HttpServerOptions(), [this](net::HttpRequest request, net::HttpResponder responder) {
        HandleHttp(std::move(request), std::move(responder));
      });
  MR_ASSIGN_OR_RETURN(http_port_,
                      net::PortMux::Start(options_.listen, options_.http_port,
                                          {.grpc = [](int fd) { close(fd); },
                                           .http = [this](int fd) { http_->Adopt(fd); }}));
  return OkStatus();
}

// One pass over the log feeds every part with its records. The broker is always there, so that a
// process without its role loses none of its state.
Status Server::Recover() {
  pubsub::BrokerEnvironment environment;
  environment.storage = storage_.get();
  environment.clock = &clock_;
  environment.timers = timers_.get();
  environment.pool = pool_.get();
  environment.blocking = blocking_.get();
  environment.random_seed = RandomSeed();
  MR_ASSIGN_OR_RETURN(broker_, pubsub::Broker::Load(environment, pubsub::BrokerOptions()));
  MR_RETURN_IF_ERROR(OpenJobs());
  MR_ASSIGN_OR_RETURN(storage::Lsn from, storage::Checkpointer::ReplayPosition(*storage_->store));
  MR_RETURN_IF_ERROR(
      storage_->log->Replay(from, [this](storage::Lsn, const storage::Record& record) -> Status {
        switch (record.shard.kind) {
          case ShardKind::kCatalog:
          case ShardKind::kTopic:
          case ShardKind::kSubscription:
            return broker_->Replay(record);
          case ShardKind::kJobs:
          case ShardKind::kRange:
            if (jobs_) return jobs_->Replay(record);
            break;
        }
        return FailedPrecondition(fmt::format(
            "The data directory {} holds jobs; start with --roles pubsub,dataflow, or name another "
            "--data-dir.",
            options_.data_dir));
      }));
  recovered_ = true;
  broker_->Start();
  if (jobs_) jobs_->Start();
  return OkStatus();
}

Status Server::OpenJobs() {
  if (!options_.dataflow) return OkStatus();
  jobs::JobServerEnvironment environment;
  environment.storage = storage_.get();
  environment.clock = &clock_;
  environment.timers = timers_.get();
  environment.pool = pool_.get();
  environment.broker = options_.pubsub ? broker_.get() : nullptr;
  environment.hosts = options_.listen;
  environment.port = options_.dataflow_port;
  environment.artifact_directory = ArtifactDirectory(options_);
  MR_ASSIGN_OR_RETURN(jobs_, jobs::JobServer::Open(environment));
  return OkStatus();
}

Status Server::StartPubsub() {
  if (!options_.pubsub) return OkStatus();
  api::AddPublisherMethods(*broker_, methods_);
  api::AddSubscriberMethods(*broker_, methods_);
  rest_router_ = std::make_unique<api::RestRouter>(methods_);
  rest_ = std::make_unique<net::HttpServer>(
      net::HttpServerOptions(), [this](net::HttpRequest request, net::HttpResponder responder) {
        rest_router_->Handle(std::move(request), std::move(responder));
      });
  grpc_ = std::make_unique<api::GrpcServer>(*broker_, methods_);
  grpc_->SetServing(true);
  MR_ASSIGN_OR_RETURN(pubsub_port_,
                      net::PortMux::Start(options_.listen, options_.pubsub_port,
                                          {.grpc = [this](int fd) { grpc_->Take(fd); },
                                           .http = [this](int fd) { rest_->Adopt(fd); }}));
  return OkStatus();
}

std::string Server::ReadyLine() const {
  const std::string& host = options_.listen.front();
  return fmt::format("ready pubsub={} dataflow={} http={}",
                     pubsub_port_ ? HostPort(host, pubsub_port_->port()) : "-",
                     jobs_ ? HostPort(host, jobs_->port()) : "-",
                     HostPort(host, http_port_->port()));
}

void Server::HandleHttp(net::HttpRequest request, net::HttpResponder responder) {
  std::string_view path(request.target);
  path = path.substr(0, path.find('?'));
  if (request.method != "GET" && request.method != "HEAD") {
    return SendText(responder, 405, "Only GET is served here.\n");
  }
  if (path == "/health") return SendText(responder, 200, "ok\n");
  bool ready = ready_;
  if (path == "/ready") {
    return SendText(responder, ready ? 200 : 503, ready ? "ready\n" : "starting\n");
  }
  if (path == "/metrics" && ready) {
    auto waiting = std::make_shared<net::HttpResponder>(std::move(responder));
    broker_->Metrics([this, waiting](std::string broker) {
      SendText(*waiting, 200, ProcessMetrics(storage_->log->Stats()) + broker,
               "text/plain; version=0.0.4; charset=utf-8");
    });
    return;
  }
  SendText(responder, path == "/metrics" ? 503 : 404,
           path == "/metrics" ? "starting\n" : "This port serves /health, /ready and /metrics.\n");
}

void Server::Stop() {
  if (std::exchange(stopped_, true)) return;
  ready_ = false;
  if (pubsub_port_) pubsub_port_->Stop();
  if (grpc_) grpc_->SetServing(false);
  if (recovered_ && jobs_) jobs_->Stop();
  // Streams and pulls are answered with UNAVAILABLE; what is left ends within the graces.
  auto end_calls = [this] {
    if (recovered_) broker_->Stop();
  };
  if (grpc_) {
    grpc_->Stop(milliseconds(1000), end_calls);
  } else {
    end_calls();
  }
  if (rest_) rest_->Stop(milliseconds(500));
  if (http_port_) http_port_->Stop();
  if (http_) http_->Stop(milliseconds(200));
  if (recovered_) {
    if (Status closed = storage_->Close(); !closed.ok()) {
      MR_LOG(kWarning, "the last checkpoint failed, the next start takes longer: {}",
             MessageOf(closed));
    }
  }
  jobs_.reset();
  timers_.reset();
  pool_->Stop();
  blocking_->Stop();
  if (options_.in_memory) {
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(ArtifactDirectory(options_)).parent_path(),
                                ignored);
  }
}

}  // namespace millrace::apps
