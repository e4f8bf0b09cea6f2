// The far side of the Fn API for tests: a server of our services on a free port, SDK workers whose
// every step a test writes, and a worker pool that starts them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "fnapi/fn_server.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.grpc.pb.h"
#include "org/apache/beam/model/fn_execution/v1/beam_provision_api.grpc.pb.h"

namespace millrace::testing {

namespace fn = org::apache::beam::model::fn_execution::v1;

// Long enough for the slowest machine; nothing waits so long unless it is broken.
inline constexpr auto kTestPatience = std::chrono::seconds(60);

// What other threads tell a test, in order.
template <typename T>
class Inbox {
 public:
  void Put(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    ready_.notify_all();
  }
  // Nothing: it did not come in time.
  std::optional<T> Take() {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, kTestPatience, [this] { return !values_.empty(); })) return {};
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> values_;
};

// The runner's end. Outlives its workers.
class FnPort {
 public:
  FnPort() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server.Register(builder);
    grpc_ = builder.BuildAndStart();
    url = "127.0.0.1:" + std::to_string(port);
  }
  ~FnPort() { grpc_->Shutdown(std::chrono::system_clock::now()); }

  fnapi::FnServer server;
  std::string url;

 private:
  std::unique_ptr<grpc::Server> grpc_;
};

// One blocking bidirectional stream of a worker.
template <typename Out, typename In>
class WorkerStream {
 public:
  using Stream = grpc::ClientReaderWriter<Out, In>;
  template <typename Open>
  WorkerStream(const std::string& worker_id, Open open) {
    context_.AddMetadata("worker_id", worker_id);
    context_.set_deadline(std::chrono::system_clock::now() + kTestPatience);
    stream_ = open(&context_);
  }
  ~WorkerStream() { End(); }

  bool Send(const Out& message) { return stream_->Write(message); }
  // Nothing: the stream has ended.
  std::optional<In> Receive() {
    In message;
    if (!stream_->Read(&message)) return {};
    return message;
  }
  grpc::Status End() {
    if (stream_ == nullptr) return grpc::Status::OK;
    stream_->WritesDone();
    In ignored;
    while (stream_->Read(&ignored)) continue;
    grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  void Break() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

class SdkWorker {
 public:
  SdkWorker(const std::string& url, const std::string& id)
      : channel_(grpc::CreateChannel(url, grpc::InsecureChannelCredentials())),
        control_stub_(fn::BeamFnControl::NewStub(channel_)),
        data_stub_(fn::BeamFnData::NewStub(channel_)),
        state_stub_(fn::BeamFnState::NewStub(channel_)),
        provision_stub_(fn::ProvisionService::NewStub(channel_)),
        id_(id),
        control(id, [&](grpc::ClientContext* context) { return control_stub_->Control(context); }),
        data(id, [&](grpc::ClientContext* context) { return data_stub_->Data(context); }),
        state(id, [&](grpc::ClientContext* context) { return state_stub_->State(context); }) {}

  // Calls of one request.
  template <typename Call>
  grpc::Status Unary(Call call) {
    grpc::ClientContext context;
    context.AddMetadata("worker_id", id_);
    context.set_deadline(std::chrono::system_clock::now() + kTestPatience);
    return call(&context);
  }
  fn::ProvisionService::Stub& provision() { return *provision_stub_; }
  fn::BeamFnControl::Stub& descriptors() { return *control_stub_; }

  // Everything of a bundle up to its last frame.
  std::string ReceiveInput() {
    std::string bytes;
    while (std::optional<fn::Elements> frame = data.Receive()) {
      for (const fn::Elements::Data& part : frame->data()) {
        bytes += part.data();
        if (part.is_last()) return bytes;
      }
    }
    return bytes;
  }
  // Gives back `output` on sink-0, ends the timer family of KeyedProgram, and answers.
  void Succeed(const std::string& instruction, const std::string& output) {
    fn::Elements frame;
    fn::Elements::Data* part = frame.add_data();
    part->set_instruction_id(instruction);
    part->set_transform_id("sink-0");
    part->set_data(output);
    part->set_is_last(true);
    fn::Elements::Timers* timers = frame.add_timers();
    timers->set_instruction_id(instruction);
    timers->set_transform_id("work");
    timers->set_timer_family_id("wake");
    timers->set_is_last(true);
    data.Send(frame);
    fn::InstructionResponse answer;
    answer.set_instruction_id(instruction);
    answer.mutable_process_bundle();
    control.Send(answer);
  }
  void FailWith(const std::string& instruction, const std::string& error) {
    fn::InstructionResponse answer;
    answer.set_instruction_id(instruction);
    answer.set_error(error);
    control.Send(answer);
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<fn::BeamFnControl::Stub> control_stub_;
  std::unique_ptr<fn::BeamFnData::Stub> data_stub_;
  std::unique_ptr<fn::BeamFnState::Stub> state_stub_;
  std::unique_ptr<fn::ProvisionService::Stub> provision_stub_;
  std::string id_;

 public:
  WorkerStream<fn::InstructionResponse, fn::InstructionRequest> control;
  WorkerStream<fn::Elements, fn::Elements> data;
  WorkerStream<fn::StateRequest, fn::StateResponse> state;
};

// A pool that tells the test what it was asked, and answers as the test says.
class ScriptedPool : public fn::BeamFnExternalWorkerPool::Service {
 public:
  ScriptedPool() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    grpc_ = builder.BuildAndStart();
    url = "127.0.0.1:" + std::to_string(port);
  }
  ~ScriptedPool() override { Shutdown(); }
  void Shutdown() { grpc_->Shutdown(std::chrono::system_clock::now()); }

  std::string url;
  Inbox<fn::StartWorkerRequest> started;
  Inbox<std::string> stopped;
  // Empty: yes. Set before the call comes.
  std::function<std::string(const fn::StartWorkerRequest&)> refuse;

 private:
  grpc::Status StartWorker(grpc::ServerContext* context, const fn::StartWorkerRequest* request,
                           fn::StartWorkerResponse* response) override {
    if (refuse) response->set_error(refuse(*request));
    started.Put(*request);
    return grpc::Status::OK;
  }
  grpc::Status StopWorker(grpc::ServerContext* context, const fn::StopWorkerRequest* request,
                          fn::StopWorkerResponse* response) override {
    stopped.Put(request->worker_id());
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace millrace::testing
