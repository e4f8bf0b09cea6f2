#include "fnapi/worker_pool.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "fmt/format.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.grpc.pb.h"

namespace millrace::fnapi {
namespace {

// A LOOPBACK pool answers only when its worker thread is up.
constexpr auto kStartTimeout = std::chrono::seconds(20);
constexpr auto kStopTimeout = std::chrono::seconds(3);

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

// gRPC 1.51 keeps one set of callback threads for all channels and frees it with its last user — on
// one of those very threads if the last reference to a channel goes in a callback, as ours may. A
// channel that never goes prevents that.
void KeepCallbackThreads() {
  static const bool kept = [] {
    auto* stub = new std::unique_ptr<fn::BeamFnExternalWorkerPool::Stub>(
        fn::BeamFnExternalWorkerPool::NewStub(
            grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials())));
    auto call = std::make_shared<Call<fn::StopWorkerRequest, fn::StopWorkerResponse>>();
    call->context.set_deadline(std::chrono::system_clock::now());
    (*stub)->async()->StopWorker(&call->context, &call->request, &call->response,
                                 [call](grpc::Status) {});
    return true;
  }();
  static_cast<void>(kept);
}

}  // namespace

struct WorkerPool::Stub {
  explicit Stub(const std::string& url)
      : url(url),
        stub(fn::BeamFnExternalWorkerPool::NewStub(
            grpc::CreateChannel(url, grpc::InsecureChannelCredentials()))) {}
  const std::string url;
  const std::unique_ptr<fn::BeamFnExternalWorkerPool::Stub> stub;
};

WorkerPool::WorkerPool(const std::string& url) : stub_(std::make_shared<Stub>(url)) {
  KeepCallbackThreads();
}
WorkerPool::~WorkerPool() = default;

void WorkerPool::Start(fn::StartWorkerRequest request, Callback<void(Status)> done) {
  auto call = std::make_shared<Call<fn::StartWorkerRequest, fn::StartWorkerResponse>>();
  call->request = std::move(request);
  call->context.set_deadline(std::chrono::system_clock::now() + kStartTimeout);
  auto reply = std::make_shared<Callback<void(Status)>>(std::move(done));
  stub_->stub->async()->StartWorker(
      &call->context, &call->request, &call->response,
      [call, reply, stub = stub_](grpc::Status status) {
        if (!status.ok()) {
          (*reply)(
              Unavailable(fmt::format("worker pool {}: {}", stub->url, status.error_message())));
        } else if (!call->response.error().empty()) {
          (*reply)(Unavailable(
              fmt::format("worker pool {} refused: {}", stub->url, call->response.error())));
        } else {
          (*reply)(OkStatus());
        }
      });
}

void WorkerPool::Stop(const std::string& worker_id, Task done) {
  auto call = std::make_shared<Call<fn::StopWorkerRequest, fn::StopWorkerResponse>>();
  call->request.set_worker_id(worker_id);
  call->context.set_deadline(std::chrono::system_clock::now() + kStopTimeout);
  auto reply = std::make_shared<Task>(std::move(done));
  stub_->stub->async()->StopWorker(&call->context, &call->request, &call->response,
                                   [call, reply, stub = stub_](grpc::Status) { (*reply)(); });
}

}  // namespace millrace::fnapi
