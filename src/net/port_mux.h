// One port for gRPC and HTTP/1.1: looks at the first bytes of a connection without taking them and
// hands the socket to the one it is meant for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"

namespace millrace::net {

// Accepts on a thread of its own. A connection that starts with the HTTP/2 preface goes to `grpc`,
// any other plain one to `http`; a TLS ClientHello, or a client that says nothing for
// `first_bytes_timeout`, is closed. The routes are called on that thread, own the descriptor they
// get (non-blocking, close-on-exec, TCP_NODELAY set) and must not block. Serving does not belong
// here.
class PortMux {
 public:
  struct Routes {
    Callback<void(int fd)> grpc;
    Callback<void(int fd)> http;
    Duration first_bytes_timeout = std::chrono::seconds(30);
  };

  // Listens on every host, all on one number; port 0 picks a number that is free on all of them. An
  // IPv6 loopback that the machine does not have is left out if another host is there. The error of
  // a busy port says what to do.
  static StatusOr<std::unique_ptr<PortMux>> Start(std::vector<std::string> hosts, int port,
                                                  Routes routes);
  ~PortMux();
  PortMux(const PortMux&) = delete;
  PortMux& operator=(const PortMux&) = delete;

  int port() const;
  // Closes the listening sockets and what is not routed yet. Blocks; no route is called after it.
  // Idempotent.
  void Stop();

 private:
  class Loop;
  explicit PortMux(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace millrace::net
