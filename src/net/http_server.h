// HTTP/1.1 server. A request is handed over whole and answered later, from any thread, so a long
// poll holds no thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "net/http_message.h"
#include "net/port_mux.h"

namespace millrace::net {

class HttpExchange;

// The right to answer one request. Move-only and thread-safe; the first Send wins, and dropping it
// unsent answers 500. It may outlive the server, then it does nothing.
class HttpResponder {
 public:
  explicit HttpResponder(std::shared_ptr<HttpExchange> exchange);
  HttpResponder(HttpResponder&&) noexcept = default;
  HttpResponder& operator=(HttpResponder&& other) noexcept;
  ~HttpResponder();

  void Send(HttpResponse response);
  // Runs `task` once, on a thread of the server, if the client goes away before Send (soon, if it
  // is gone by now). A later call replaces the task. A client that only closed its sending side
  // counts as gone, yet an answer sent after that still reaches it.
  void OnCancelled(Task task);

 private:
  std::shared_ptr<HttpExchange> exchange_;
};

// Called on a thread of the server; must not block.
using HttpHandler = std::function<void(HttpRequest, HttpResponder)>;

struct HttpServerOptions {
  int threads = 1;
  // Of the body as the handler gets it, that is after gunzip: 10 MiB, Pub/Sub's limit for a
  // publish, plus what base64 and JSON add to it.
  size_t body_bytes_max = 16 << 20;
  size_t header_bytes_max = 32 << 10;
  Duration idle_timeout = std::chrono::seconds(120);   // between requests
  Duration header_timeout = std::chrono::seconds(30);  // first byte to end of the header
  Duration stall_timeout = std::chrono::seconds(60);   // body or response without progress
};

// Serves HTTP/1.1 and 1.0: keep-alive, pipelining (answers in order, one request at a time per
// connection), chunked and gzipped request bodies, Expect: 100-continue, HEAD. Requests it cannot
// accept (malformed, too large, too slow) are answered by itself with HttpError and never reach the
// handler. Each connection lives on one of `threads` event loops, where its handler calls run.
// Routing, authentication and JSON do not belong here.
class HttpServer {
 public:
  HttpServer(HttpServerOptions options, HttpHandler handler);
  // As Stop(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens on its own; hosts and port as in PortMux::Start. Returns the port.
  StatusOr<int> Listen(std::vector<std::string> hosts, int port);
  StatusOr<int> Listen(const std::string& host, int port) {
    return Listen(std::vector<std::string>{host}, port);
  }
  // Serves an accepted stream socket from its first byte; owns the descriptor from here on.
  void Adopt(int fd);
  // Accepts nothing more, closes idle connections, lets requests in flight finish for `grace`, then
  // cancels the rest. Blocks; no handler or cancel task runs after it. Not from a server thread.
  void Stop(Duration grace);

 private:
  class Connection;
  class Loop;

  HttpServerOptions options_;
  HttpHandler handler_;
  std::vector<std::shared_ptr<Loop>> loops_;
  std::atomic<size_t> next_loop_ = 0;
  std::vector<std::unique_ptr<PortMux>> listeners_;  // Listen and Stop: the owner's thread
};

}  // namespace millrace::net
