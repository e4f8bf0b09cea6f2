#include "net/grpc_acceptor.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include "base/log.h"

namespace millrace::net {

GrpcAcceptor::GrpcAcceptor() = default;
GrpcAcceptor::~GrpcAcceptor() = default;

void GrpcAcceptor::Attach(grpc::ServerBuilder& builder) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  MR_CHECK(acceptor_ == nullptr);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Type::FROM_FD, grpc::InsecureServerCredentials());
}

void GrpcAcceptor::Take(int fd) {
  if (acceptor_ == nullptr) {
    close(fd);
    return;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = fd;
  acceptor_->HandleNewConnection(&parameters);
}

}  // namespace millrace::net
