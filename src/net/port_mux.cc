#include "net/port_mux.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "net/socket.h"

namespace millrace::net {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Descriptor = asio::posix::stream_descriptor;

// The HTTP/2 connection preface up to where no HTTP/1.1 request can follow.
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0";
constexpr char kTlsHandshake = 0x16;
// After this many accepted sockets in one go others get their turn.
constexpr int kAcceptBatch = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kPeekPauseMin = std::chrono::milliseconds(2);
constexpr auto kPeekPauseMax = std::chrono::milliseconds(100);

// What the first bytes announce.
enum class Protocol { kUndecided, kHttp2, kHttp1, kTls };

Protocol Classify(std::string_view first_bytes) {
  if (first_bytes.empty()) return Protocol::kUndecided;
  if (first_bytes[0] == kTlsHandshake) return Protocol::kTls;
  size_t common = std::min(first_bytes.size(), kHttp2Preface.size());
  if (first_bytes.substr(0, common) != kHttp2Preface.substr(0, common)) return Protocol::kHttp1;
  return common == kHttp2Preface.size() ? Protocol::kHttp2 : Protocol::kUndecided;
}

// True if the other end will send nothing more.
bool PeerClosed(int fd) {
  pollfd entry = {fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

// The thread and what it waits for. A connection is here from accept until it is routed.
class PortMux::Loop {
 public:
  Loop(Listeners listeners, Routes routes)
      : port_(listeners.port), routes_(std::move(routes)), context_(1) {
    for (Fd& socket : listeners.sockets) {
      listeners_.push_back(std::make_unique<Listener>(context_, socket.Release()));
    }
  }

  void Start() {
    for (const auto& listener : listeners_) WaitForConnection(*listener);
    thread_ = std::thread([this] { context_.run(); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] { CloseAll(); });
    thread_.join();
  }
  int port() const { return port_; }

 private:
  struct Listener {
    Listener(asio::io_context& context, int fd) : socket(context, fd), pause(context) {}
    Descriptor socket;
    asio::steady_timer pause;
  };
  // An accepted connection whose first bytes do not yet say what it is.
  struct Pending {
    Pending(asio::io_context& context, int fd)
        : socket(context, fd), deadline(context), pause(context) {}
    Descriptor socket;
    asio::steady_timer deadline;
    asio::steady_timer pause;
    std::chrono::milliseconds next_pause = kPeekPauseMin;
  };

  // What the bytes that have arrived say.
  enum class Verdict { kNothingYet, kTooLittle, kGrpc, kHttp, kClose };

  static Verdict Look(int fd);
  void WaitForConnection(Listener& listener);
  void Accept(Listener& listener);
  void Route(int fd, Verdict verdict);
  void Hold(int fd);
  void Inspect(const std::shared_ptr<Pending>& pending);
  int TakeBack(const std::shared_ptr<Pending>& pending);
  void CloseAll();

  const int port_;
  Routes routes_;
  asio::io_context context_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unordered_set<std::shared_ptr<Pending>> pending_;
  bool stopped_ = false;
  std::thread thread_;
};

void PortMux::Loop::WaitForConnection(Listener& listener) {
  listener.socket.async_wait(Descriptor::wait_read, [this, &listener](ErrorCode ec) {
    if (!ec && !stopped_) Accept(listener);
  });
}

void PortMux::Loop::Accept(Listener& listener) {
  for (int i = 0; i < kAcceptBatch; ++i) {
    int fd =
        accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EAGAIN) break;
      // A connection that was lost while it waited says nothing about the next one.
      if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO) continue;
      MR_LOG(kWarning, "Port {} cannot accept a connection: {}", port_, std::strerror(errno));
      listener.pause.expires_after(kAcceptPause);
      listener.pause.async_wait([this, &listener](ErrorCode ec) {
        if (!ec && !stopped_) WaitForConnection(listener);
      });
      return;
    }
    PrepareSocket(fd);
    Verdict verdict = Look(fd);
    if (verdict == Verdict::kNothingYet || verdict == Verdict::kTooLittle) {
      Hold(fd);
    } else {
      Route(fd, verdict);
    }
  }
  WaitForConnection(listener);
}

PortMux::Loop::Verdict PortMux::Loop::Look(int fd) {
  char bytes[kHttp2Preface.size()];
  ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kNothingYet;
  if (got <= 0) return Verdict::kClose;
  switch (Classify({bytes, static_cast<size_t>(got)})) {
    case Protocol::kUndecided:
      return PeerClosed(fd) ? Verdict::kClose : Verdict::kTooLittle;
    case Protocol::kHttp2:
      return Verdict::kGrpc;
    case Protocol::kHttp1:
      return Verdict::kHttp;
    case Protocol::kTls:
      return Verdict::kClose;
  }
  return Verdict::kClose;
}

void PortMux::Loop::Route(int fd, Verdict verdict) {
  if (verdict == Verdict::kGrpc) {
    routes_.grpc(fd);
  } else if (verdict == Verdict::kHttp) {
    routes_.http(fd);
  } else {
    close(fd);
  }
}

void PortMux::Loop::Hold(int fd) {
  auto pending = std::make_shared<Pending>(context_, fd);
  pending_.insert(pending);
  pending->deadline.expires_after(routes_.first_bytes_timeout);
  pending->deadline.async_wait([this, pending](ErrorCode ec) {
    if (!ec && pending_.count(pending) > 0) close(TakeBack(pending));
  });
  Inspect(pending);
}

void PortMux::Loop::Inspect(const std::shared_ptr<Pending>& pending) {
  auto again = [this, pending](ErrorCode) {
    if (pending_.count(pending) > 0) Inspect(pending);
  };
  Verdict verdict = Look(pending->socket.native_handle());
  if (verdict == Verdict::kNothingYet) {
    pending->socket.async_wait(Descriptor::wait_read, again);
  } else if (verdict == Verdict::kTooLittle) {
    // The bytes stay unread, so the socket stays readable and waiting for that would spin.
    pending->pause.expires_after(pending->next_pause);
    pending->next_pause = std::min(pending->next_pause * 2, kPeekPauseMax);
    pending->pause.async_wait(again);
  } else {
    Route(TakeBack(pending), verdict);
  }
}

int PortMux::Loop::TakeBack(const std::shared_ptr<Pending>& pending) {
  pending_.erase(pending);
  pending->deadline.cancel();
  pending->pause.cancel();
  return pending->socket.release();
}

void PortMux::Loop::CloseAll() {
  stopped_ = true;
  for (const auto& listener : listeners_) {
    ErrorCode ignored;
    listener->socket.close(ignored);
    listener->pause.cancel();
  }
  while (!pending_.empty()) {
    auto pending = *pending_.begin();
    close(TakeBack(pending));
  }
}

PortMux::PortMux(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

PortMux::~PortMux() { Stop(); }

StatusOr<std::unique_ptr<PortMux>> PortMux::Start(std::vector<std::string> hosts, int port,
                                                  Routes routes) {
  MR_ASSIGN_OR_RETURN(Listeners listeners, ListenTcp(hosts, port));
  auto loop = std::make_unique<Loop>(std::move(listeners), std::move(routes));
  loop->Start();
  return std::unique_ptr<PortMux>(new PortMux(std::move(loop)));
}

int PortMux::port() const { return loop_->port(); }

void PortMux::Stop() { loop_->Stop(); }

}  // namespace millrace::net
