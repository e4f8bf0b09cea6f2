#include "api/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "google/iam/v1/iam_policy.pb.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"

namespace millrace::api {
namespace {

// A little above kRequestBytesMax, so that the refusal of a request just over it is ours.
constexpr int kReceiveBytesMax = 12 << 20;
constexpr int kMetadataBytesMax = 4 << 20;
// Frames of DATA that clients may send: fewer, larger ones cost less than the default 16 KB.
constexpr int kFrameBytesMax = 1 << 20;

constexpr auto kGoawayTransit = std::chrono::milliseconds(100);

void SetChannelArguments(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kReceiveBytesMax);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytesMax);
  // Clients ping every 30 s, also without a call; nobody is sent away for it.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

}  // namespace

GrpcServer::GrpcServer(pubsub::Broker& broker, const MethodTable& table) : sessions_(broker) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetChannelArguments(builder);
  auto add = [&](const google::protobuf::FileDescriptor& file) {
    for (int i = 0; i < file.service_count(); ++i) {
      StreamFactory streams;
      if (file.service(i)->name() == "Subscriber") {
        streams = [this](grpc::CallbackServerContext*) { return sessions_.Open(); };
      }
      services_.push_back(
          std::make_unique<RpcService>(*file.service(i), table, std::move(streams)));
      builder.RegisterService(services_.back().get());
    }
  };
  add(*google::pubsub::v1::Topic::descriptor()->file());
  add(*google::pubsub::v1::Schema::descriptor()->file());
  add(*google::iam::v1::GetIamPolicyRequest::descriptor()->file());
  acceptor_.Attach(builder);
  server_ = builder.BuildAndStart();
  MR_CHECK(server_ != nullptr);
}

GrpcServer::~GrpcServer() { Stop(Duration(0)); }

void GrpcServer::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

void GrpcServer::Stop(Duration grace, FunctionRef<void()> end_calls) {
  if (std::exchange(stopped_, true)) return;
  std::thread shutting_down(
      [this, until = std::chrono::system_clock::now() + grace] { server_->Shutdown(until); });
  // Clients open a new stream as soon as the old one ends. Those that have not seen the GOAWAY by
  // then do it on this connection, where gRPC can only cancel it, and to them CANCELLED is final.
  std::this_thread::sleep_for(std::min<std::chrono::microseconds>(kGoawayTransit, grace));
  sessions_.End(Unavailable("The server is shutting down. Please connect again."));
  end_calls();
  shutting_down.join();
}

}  // namespace millrace::api
