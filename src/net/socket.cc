#include "net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace millrace::net {
namespace {

constexpr int kBacklog = 1024;
// How often a number that only some of the hosts have free is thrown back.
constexpr int kPortAttempts = 100;

struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  int family = AF_UNSPEC;
};

StatusOr<Address> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgument(fmt::format(
        "Cannot listen on \"{}\": it is no address of this machine ({}); give an IP address such "
        "as 127.0.0.1.",
        host, gai_strerror(error)));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  address.family = found->ai_family;
  freeaddrinfo(found);
  return address;
}

Status ListenError(const std::string& host, int port, int error) {
  switch (error) {
    case EADDRINUSE:
      return FailedPrecondition(fmt::format(
          "Port {} on {} is in use by another process; stop that process or choose another port (0 "
          "takes any free one).",
          port, host));
    case EACCES:
      return FailedPrecondition(fmt::format(
          "Port {} on {} needs privileges that this process does not have; choose a port above "
          "1023.",
          port, host));
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return FailedPrecondition(fmt::format(
          "This machine has no address {}; listen on an address of one of its interfaces.", host));
    default:
      return FailedPrecondition(fmt::format("Cannot listen on port {} of {} ({}); choose another.",
                                            port, host, std::strerror(error)));
  }
}

int PortOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

// A listening socket, or -1 and the errno in `error`.
Fd TryListen(const Address& address, int* error) {
  Fd fd(socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int on = 1;
  *error = 0;
  if (fd.get() < 0) {
    *error = errno;
    return fd;
  }
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    *error = errno;
    return Fd();
  }
  return fd;
}

// One attempt; `*taken` tells that a number the kernel chose is in use on a later host.
StatusOr<Listeners> ListenOnce(const std::vector<std::string>& hosts, int port, bool* taken) {
  Listeners listeners;
  listeners.port = port;
  *taken = false;
  for (const std::string& host : hosts) {
    MR_ASSIGN_OR_RETURN(Address address, Resolve(host, listeners.port));
    int error = 0;
    Fd fd = TryListen(address, &error);
    if (error == 0) {
      if (listeners.port == 0) listeners.port = PortOf(fd.get());
      listeners.sockets.push_back(std::move(fd));
      continue;
    }
    bool missing = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
    if (missing && host == "::1" && hosts.size() > 1) {
      MR_LOG(kWarning, "This machine has no IPv6 loopback; not listening on ::1");
      continue;
    }
    *taken = port == 0 && error == EADDRINUSE;
    return ListenError(host, listeners.port, error);
  }
  return listeners;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

int Fd::Release() {
  int fd = fd_;
  fd_ = -1;
  return fd;
}

StatusOr<Listeners> ListenTcp(const std::vector<std::string>& hosts, int port) {
  if (hosts.empty()) return InvalidArgument("There is no address to listen on; give at least one.");
  if (port < 0 || port > 65535) {
    return InvalidArgument(fmt::format("Port {} is not between 0 and 65535.", port));
  }
  std::vector<std::string> distinct;
  for (const std::string& host : hosts) {
    if (std::find(distinct.begin(), distinct.end(), host) == distinct.end()) {
      distinct.push_back(host);
    }
  }
  // A missing ::1 is left out only where another host serves, so it must not come first.
  std::partition(distinct.begin(), distinct.end(),
                 [](const std::string& host) { return host != "::1"; });
  bool taken = true;
  StatusOr<Listeners> listeners = Internal("unreachable");
  for (int attempt = 0; attempt < kPortAttempts && taken; ++attempt) {
    listeners = ListenOnce(distinct, port, &taken);
  }
  return listeners;
}

void PrepareSocket(int fd) {
  int on = 1;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::string PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(fd, address, &size) != 0 ||
      getnameinfo(address, size, host, sizeof(host), service, sizeof(service),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, service)
                                       : fmt::format("{}:{}", host, service);
}

bool IsIpv6(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 &&
         storage.ss_family == AF_INET6;
}

}  // namespace millrace::net
