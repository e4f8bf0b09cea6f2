// Gives accepted sockets to a gRPC server.
#pragma once

#include <memory>

namespace grpc {
class ServerBuilder;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace millrace::net {

// The gRPC end of a PortMux route: Attach, build the server, start the mux; stop the mux, then shut
// the server down. (A socket that comes before the server runs, or after its end, gRPC neither
// serves nor closes.) Take may be called from any thread. Owned by the one who owns the server.
class GrpcAcceptor {
 public:
  GrpcAcceptor();
  ~GrpcAcceptor();
  GrpcAcceptor(const GrpcAcceptor&) = delete;
  GrpcAcceptor& operator=(const GrpcAcceptor&) = delete;

  // Connections taken are served without TLS. Once per acceptor.
  void Attach(grpc::ServerBuilder& builder);
  // Owns `fd` from here on.
  void Take(int fd);

 private:
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
};

}  // namespace millrace::net
