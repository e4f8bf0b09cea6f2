// One unary gRPC call on its way through a handler of the method table.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "api/method_table.h"
#include "base/mutex.h"

namespace millrace::api {

// Holds itself until gRPC is done with it and the reply has come or been dropped; whichever of
// reply and cancellation is first finishes the call. gRPC and the broker call it on any thread.
class UnaryCall final : public grpc::ServerUnaryReactor,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  // `handler` outlives the call. The result belongs to gRPC until OnDone.
  static grpc::ServerUnaryReactor* Start(const UnaryHandler& handler,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);

  UnaryCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : context_(context), response_(response) {}

 private:
  void Run(const UnaryHandler& handler, SharedBytes request);
  void Reply(StatusOr<Answer> answer);
  void OnCancel() override;
  void OnDone() override;

  grpc::CallbackServerContext* const context_;  // valid until OnDone, like response_
  grpc::ByteBuffer* const response_;
  Task if_unsent_;  // set before Finish, read in OnDone
  Mutex mutex_;
  bool finished_ MR_GUARDED_BY(mutex_) = false;
  std::shared_ptr<void> handle_ MR_GUARDED_BY(mutex_);
  std::shared_ptr<UnaryCall> self_;  // until OnDone
};

// Requests above this are refused by a sentence of our own, as the service does; gRPC's own cap
// stands a little higher.
inline constexpr size_t kRequestBytesMax = 10'485'760;

}  // namespace millrace::api
