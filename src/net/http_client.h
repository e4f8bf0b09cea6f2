// HTTP/1.1 client for push delivery and other outgoing calls.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "net/http_message.h"

namespace millrace::net {

struct HttpCall {
  std::string method = "POST";
  std::string url;  // "http://HOST[:PORT]/PATH?QUERY" or https
  // Host, Content-Length and Connection are the client's own.
  HttpHeaders headers;
  std::string body;
  Duration timeout = std::chrono::seconds(30);
};

struct HttpClientOptions {
  int connections_per_host_max = 32;  // calls beyond it wait in line
  Duration idle_timeout = std::chrono::seconds(30);
  size_t response_bytes_max = 4 << 20;
  // PEM file of the authorities that https servers must be signed by; empty: the system's.
  std::string ca_file;
};

// Calls are asynchronous; connections are kept alive and reused per scheme, host and port. A call
// that a reused connection loses before any byte of the answer is sent once more on a fresh one,
// never a call on a fresh connection. Redirects are not followed. Thread-safe; one thread of its
// own. Retries, back-off and authentication belong to the caller.
class HttpClient {
 public:
  explicit HttpClient(HttpClientOptions options);
  // Ends open calls with CANCELLED and waits for their callbacks.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `done` runs once, on the client's thread, and must not block. Any HTTP status is a success
  // here; errors are INVALID_ARGUMENT (bad URL), UNAVAILABLE (no connection, broken answer),
  // DEADLINE_EXCEEDED (`timeout`, waiting in line included), RESOURCE_EXHAUSTED (answer too large).
  void Send(HttpCall call, Callback<void(StatusOr<HttpResponse>)> done);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

}  // namespace millrace::net
