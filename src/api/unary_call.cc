#include "api/unary_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/errors.h"

namespace millrace::api {

grpc::ServerUnaryReactor* UnaryCall::Start(const UnaryHandler& handler,
                                           grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(context, response);
  call->self_ = call;
  call->Run(handler, ToSharedBytes(*request));
  return call.get();
}

void UnaryCall::Run(const UnaryHandler& handler, SharedBytes request) {
  if (request.size() > kRequestBytesMax) {
    Reply(InvalidArgument(
        fmt::format("Request payload size exceeds the limit: {} bytes.", kRequestBytesMax)));
    return;
  }
  CallOptions options;
  auto deadline = context_->deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    options.time_left =
        std::max(Duration(0),
                 std::chrono::duration_cast<Duration>(deadline - std::chrono::system_clock::now()));
  }
  std::shared_ptr<void> handle = handler(
      std::move(request), options,
      [self = shared_from_this()](StatusOr<Answer> answer) { self->Reply(std::move(answer)); });
  if (!handle) return;
  MutexLock lock(mutex_);
  // Otherwise the call is over; the handle goes when this function returns, after the lock.
  if (!finished_) handle_.swap(handle);
}

void UnaryCall::Reply(StatusOr<Answer> answer) {
  std::shared_ptr<void> handle;
  bool late;
  {
    MutexLock lock(mutex_);
    late = std::exchange(finished_, true);
    handle.swap(handle_);
  }
  if (late) {
    if (answer.ok() && answer->if_unsent) answer->if_unsent();
    return;
  }
  if (!answer.ok()) {
    Finish(ToGrpcStatus(answer.status()));
    return;
  }
  *response_ = std::move(answer->body);
  if_unsent_ = std::move(answer->if_unsent);
  Finish(grpc::Status::OK);
}

void UnaryCall::OnCancel() {
  std::shared_ptr<void> handle;
  {
    MutexLock lock(mutex_);
    if (std::exchange(finished_, true)) return;
    handle.swap(handle_);
  }
  handle.reset();
  Finish(grpc::Status(grpc::StatusCode::CANCELLED, "The client has gone."));
}

void UnaryCall::OnDone() {
  if (if_unsent_ && context_->IsCancelled()) if_unsent_();
  if_unsent_ = {};
  std::shared_ptr<UnaryCall> last = std::move(self_);
}

}  // namespace millrace::api
