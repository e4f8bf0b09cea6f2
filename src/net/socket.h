// The few calls on TCP sockets that server and port mux share.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace millrace::net {

// An owned file descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  int get() const { return fd_; }
  int Release();

 private:
  int fd_;
};

struct Listeners {
  std::vector<Fd> sockets;
  int port = 0;
};

// Listening sockets on every host, all on one number; see PortMux::Start.
StatusOr<Listeners> ListenTcp(const std::vector<std::string>& hosts, int port);

// Makes an accepted socket non-blocking, close-on-exec and without Nagle's delay.
void PrepareSocket(int fd);

// "ADDRESS:PORT" of the other end, IPv6 in brackets; "unknown" if it has left.
std::string PeerOf(int fd);
bool IsIpv6(int fd);

}  // namespace millrace::net
