#include "fnapi/fn_server.h"

#include <map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "fmt/format.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.grpc.pb.h"
#include "org/apache/beam/model/fn_execution/v1/beam_provision_api.grpc.pb.h"

namespace millrace::fnapi {
namespace {

struct Worker {
  std::shared_ptr<Harness> harness;
  fn::ProvisionInfo info;
};

class Registry {
 public:
  void Add(std::shared_ptr<Harness> harness, fn::ProvisionInfo info) {
    MutexLock lock(mutex_);
    std::string id = harness->worker_id();
    workers_[std::move(id)] = {std::move(harness), std::move(info)};
  }
  void Remove(const std::string& worker_id) {
    Worker removed;  // destroyed outside the lock
    MutexLock lock(mutex_);
    auto it = workers_.find(worker_id);
    if (it == workers_.end()) return;
    removed = std::move(it->second);
    workers_.erase(it);
  }
  Worker Find(const std::string& worker_id) const {
    MutexLock lock(mutex_);
    auto it = workers_.find(worker_id);
    return it == workers_.end() ? Worker{} : it->second;
  }
  Worker Find(grpc::CallbackServerContext* context) const { return Find(WorkerId(context)); }

  static std::string WorkerId(grpc::CallbackServerContext* context) {
    auto it = context->client_metadata().find("worker_id");
    return it == context->client_metadata().end()
               ? ""
               : std::string(it->second.data(), it->second.size());
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Worker> workers_ MR_GUARDED_BY(mutex_);
};

grpc::Status UnknownWorker(grpc::CallbackServerContext* context) {
  return {grpc::StatusCode::NOT_FOUND,
          fmt::format("no worker with id \"{}\" is expected here", Registry::WorkerId(context))};
}

template <typename In, typename Out>
grpc::ServerBidiReactor<In, Out>* Accept(std::shared_ptr<FnStream<In, Out>> stream) {
  stream->Start();
  return stream.get();
}

// For calls that cannot be served.
template <typename In, typename Out>
grpc::ServerBidiReactor<In, Out>* Refuse(grpc::CallbackServerContext* context) {
  auto stream = FnStream<In, Out>::Make({});
  stream->Close(UnknownWorker(context));
  return stream.get();
}

class ControlService : public fn::BeamFnControl::CallbackService {
 public:
  explicit ControlService(const Registry& registry) : registry_(registry) {}

  grpc::ServerBidiReactor<fn::InstructionResponse, fn::InstructionRequest>* Control(
      grpc::CallbackServerContext* context) override {
    Worker worker = registry_.Find(context);
    if (worker.harness == nullptr)
      return Refuse<fn::InstructionResponse, fn::InstructionRequest>(context);
    return Accept(worker.harness->AcceptControl());
  }

  grpc::ServerUnaryReactor* GetProcessBundleDescriptor(
      grpc::CallbackServerContext* context, const fn::GetProcessBundleDescriptorRequest* request,
      fn::ProcessBundleDescriptor* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Worker worker = registry_.Find(context);
    std::shared_ptr<const StageProgram> program;
    if (worker.harness != nullptr)
      program = worker.harness->Program(request->process_bundle_descriptor_id());
    if (program == nullptr) {
      reactor->Finish(
          {grpc::StatusCode::NOT_FOUND,
           fmt::format("no bundle descriptor {}", request->process_bundle_descriptor_id())});
      return reactor;
    }
    *response = program->descriptor;
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const Registry& registry_;
};

class DataService : public fn::BeamFnData::CallbackService {
 public:
  explicit DataService(const Registry& registry) : registry_(registry) {}
  grpc::ServerBidiReactor<fn::Elements, fn::Elements>* Data(
      grpc::CallbackServerContext* context) override {
    Worker worker = registry_.Find(context);
    if (worker.harness == nullptr) return Refuse<fn::Elements, fn::Elements>(context);
    return Accept(worker.harness->AcceptData());
  }

 private:
  const Registry& registry_;
};

class StateService : public fn::BeamFnState::CallbackService {
 public:
  explicit StateService(const Registry& registry) : registry_(registry) {}
  grpc::ServerBidiReactor<fn::StateRequest, fn::StateResponse>* State(
      grpc::CallbackServerContext* context) override {
    Worker worker = registry_.Find(context);
    if (worker.harness == nullptr) return Refuse<fn::StateRequest, fn::StateResponse>(context);
    return Accept(worker.harness->AcceptState());
  }

 private:
  const Registry& registry_;
};

class LoggingService : public fn::BeamFnLogging::CallbackService {
 public:
  explicit LoggingService(const Registry& registry) : registry_(registry) {}
  grpc::ServerBidiReactor<fn::LogEntry::List, fn::LogControl>* Logging(
      grpc::CallbackServerContext* context) override {
    Worker worker = registry_.Find(context);
    if (worker.harness == nullptr) return Refuse<fn::LogEntry::List, fn::LogControl>(context);
    return Accept(worker.harness->AcceptLogging());
  }

 private:
  const Registry& registry_;
};

class ProvisionService : public fn::ProvisionService::CallbackService {
 public:
  explicit ProvisionService(const Registry& registry) : registry_(registry) {}
  grpc::ServerUnaryReactor* GetProvisionInfo(grpc::CallbackServerContext* context,
                                             const fn::GetProvisionInfoRequest* request,
                                             fn::GetProvisionInfoResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Worker worker = registry_.Find(context);
    if (worker.harness == nullptr) {
      reactor->Finish(UnknownWorker(context));
      return reactor;
    }
    *response->mutable_info() = worker.info;
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const Registry& registry_;
};

}  // namespace

struct FnServer::Services {
  Registry registry;
  ControlService control{registry};
  DataService data{registry};
  StateService state{registry};
  LoggingService logging{registry};
  ProvisionService provision{registry};
};

FnServer::FnServer() : services_(std::make_unique<Services>()) {}
FnServer::~FnServer() = default;

void FnServer::Register(grpc::ServerBuilder& builder) {
  builder.RegisterService(&services_->control);
  builder.RegisterService(&services_->data);
  builder.RegisterService(&services_->state);
  builder.RegisterService(&services_->logging);
  builder.RegisterService(&services_->provision);
}

void FnServer::Add(std::shared_ptr<Harness> harness, fn::ProvisionInfo info) {
  services_->registry.Add(std::move(harness), std::move(info));
}

void FnServer::Remove(const std::string& worker_id) { services_->registry.Remove(worker_id); }

}  // namespace millrace::fnapi
