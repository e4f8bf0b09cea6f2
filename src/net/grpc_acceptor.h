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

// The gRPC end of a PortMux route. Attach before the builder makes its server, then Take may be
// called from any thread; it closes the socket if the server has not started or is shut down.
// Owner: the one who owns the server. Outlives the PortMux that calls it.
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
