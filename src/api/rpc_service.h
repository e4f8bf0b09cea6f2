// A gRPC service made from its descriptor: every unary method goes to the method table.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <deque>
#include <functional>
#include <string>

#include "api/method_table.h"

namespace millrace::api {

using ByteStreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
// Makes the reactor of one bidirectional stream; gRPC owns it until its OnDone.
using StreamFactory = std::function<ByteStreamReactor*(grpc::CallbackServerContext*)>;

// Serves all methods on raw bytes, so that handlers choose for themselves what is worth parsing. A
// unary method that the table does not hold, and a stream without factory, answer UNIMPLEMENTED.
// Outlives the server it is registered with. Which methods exist does not belong here.
class RpcService final : public grpc::Service {
 public:
  RpcService(const google::protobuf::ServiceDescriptor& service, const MethodTable& table,
             StreamFactory streams = nullptr);

 private:
  void AddUnary(const google::protobuf::MethodDescriptor& method, const MethodTable& table);
  void AddStream(const google::protobuf::MethodDescriptor& method, StreamFactory streams);

  std::deque<std::string> paths_;         // gRPC keeps pointers to them
  std::deque<UnaryHandler> unsupported_;  // of methods that the table lacks
  int methods_ = 0;
};

}  // namespace millrace::api
