#include "api/rpc_service.h"

#include <utility>

#include "api/unary_call.h"
#include "api/unsupported.h"

namespace millrace::api {

using grpc::internal::RpcMethod;

RpcService::RpcService(const google::protobuf::ServiceDescriptor& service, const MethodTable& table,
                       StreamFactory streams) {
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& method = *service.method(i);
    paths_.push_back("/" + service.full_name() + "/" + method.name());
    bool stream = method.client_streaming() && method.server_streaming();
    AddMethod(new grpc::internal::RpcServiceMethod(
        paths_.back().c_str(), stream ? RpcMethod::BIDI_STREAMING : RpcMethod::NORMAL_RPC,
        nullptr));
    if (stream) {
      AddStream(method, streams);
    } else {
      AddUnary(method, table);
    }
    ++methods_;
  }
}

void RpcService::AddUnary(const google::protobuf::MethodDescriptor& method,
                          const MethodTable& table) {
  const UnaryHandler* handler = table.Find(method.full_name());
  if (handler == nullptr) {
    unsupported_.push_back(Unsupported(method.name()));
    handler = &unsupported_.back();
  }
  MarkMethodRawCallback(
      methods_, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                    [handler](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) {
                      return UnaryCall::Start(*handler, context, request, response);
                    }));
}

void RpcService::AddStream(const google::protobuf::MethodDescriptor& method,
                           StreamFactory streams) {
  if (!streams) {
    streams = [name = method.name()](grpc::CallbackServerContext*) -> ByteStreamReactor* {
      class Refusal final : public ByteStreamReactor {
       public:
        explicit Refusal(const std::string& text) {
          Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, text));
        }
        void OnDone() override { delete this; }
      };
      return new Refusal(UnsupportedText(name));
    };
  }
  MarkMethodRawCallback(methods_,
                        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                            std::move(streams)));
}

}  // namespace millrace::api
