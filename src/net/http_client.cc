#include "net/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "net/url.h"

namespace millrace::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using SteadyPoint = std::chrono::steady_clock::time_point;
using Done = Callback<void(StatusOr<HttpResponse>)>;

constexpr uint32_t kResponseHeaderMax = 64 << 10;

SteadyPoint Now() { return std::chrono::steady_clock::now(); }

bool IsCleanHeaderText(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
}

StatusOr<std::string> RequestHead(const HttpCall& call, const Url& url) {
  bool token = !call.method.empty() && std::all_of(call.method.begin(), call.method.end(),
                                                   [](char c) { return c > ' ' && c < 0x7f; });
  if (!token) return InvalidArgument("The method of an HTTP call must be a word such as POST.");
  std::string head;
  head.reserve(512);
  auto out = std::back_inserter(head);
  fmt::format_to(out, "{} {} HTTP/1.1\r\nHost: {}\r\n", call.method, url.target, url.authority);
  for (const auto& [name, value] : call.headers) {
    if (name.empty() || !IsCleanHeaderText(name) || !IsCleanHeaderText(value)) {
      return InvalidArgument(
          fmt::format("Header \"{}\" of an HTTP call has a line break in it.", name));
    }
    fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  bool bodiless = call.method == "GET" || call.method == "HEAD" || call.method == "DELETE";
  if (!call.body.empty() || !bodiless) {
    fmt::format_to(out, "Content-Length: {}\r\n", call.body.size());
  }
  head += "\r\n";
  return head;
}

}  // namespace

// All state of a client; everything but Send and Stop belongs to its thread.
class HttpClient::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(HttpClientOptions options);
  void Start() {
    thread_ = std::thread([this] { context_.run(); });
  }
  void Send(HttpCall call, Done done);
  void Stop();

 private:
  class Connection;
  struct Origin;

  // A call from Send to its callback.
  struct Call {
    explicit Call(asio::io_context& context) : deadline(context) {}
    std::shared_ptr<Origin> origin;
    std::string head;
    std::string body;
    bool is_head_method = false;
    Duration timeout;
    Done done;
    asio::steady_timer deadline;
    std::shared_ptr<Connection> connection;  // while it is under way
    bool resent = false;
  };
  using CallPtr = std::shared_ptr<Call>;

  // One scheme, host and port.
  struct Origin {
    Url url;
    int open = 0;  // connections, idle ones included
    std::vector<std::shared_ptr<Connection>> idle;
    std::deque<CallPtr> waiting;
  };

  static std::string KeyOf(const Url& url) {
    return fmt::format("{} {} {}", url.tls ? "https" : "http", url.host, url.port);
  }
  void Begin(Url url, const CallPtr& call);
  // Gives waiting calls to idle or new connections.
  void Serve(const std::shared_ptr<Origin>& origin);
  void Finish(const CallPtr& call, StatusOr<HttpResponse> result);
  void OnDeadline(const CallPtr& call);
  // A connection ended or became idle.
  void OnEnded(const std::shared_ptr<Origin>& origin);
  void OnIdle(const std::shared_ptr<Connection>& connection);
  void ArmSweep();
  void Sweep();
  void CancelAll();

  const HttpClientOptions options_;
  asio::io_context context_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> guard_;
  asio::ssl::context tls_context_;
  Status tls_status_;  // why https cannot be used
  asio::steady_timer sweep_;
  bool sweep_armed_ = false;
  bool stopping_ = false;
  std::map<std::string, std::shared_ptr<Origin>> origins_;
  std::unordered_set<CallPtr> calls_;
  std::thread thread_;
};

// One connection: opened for a call, then idle or with one call at a time until it ends.
class HttpClient::Pool::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Pool& pool, std::shared_ptr<Origin> origin)
      : pool_(pool), origin_(std::move(origin)), resolver_(pool.context_), socket_(pool.context_) {}

  void Open(const CallPtr& call);
  void Run(const CallPtr& call);
  // Closes without another word to its call.
  void Drop();
  // False if the other end closed, or sent something unasked, while this was idle.
  bool IsUsable() const;
  const std::shared_ptr<Origin>& origin() const { return origin_; }
  SteadyPoint idle_since() const { return idle_since_; }
  void set_idle_since(SteadyPoint now) { idle_since_ = now; }

 private:
  void ConnectTo(const Tcp::resolver::results_type& endpoints);
  void OnConnected(ErrorCode ec);
  void Handshake();
  void WriteRequest();
  void ReadResponse();
  void OnResponse(ErrorCode ec);
  void Fail(const Status& status);
  std::string Where() const { return fmt::format("{}:{}", origin_->url.host, origin_->url.port); }
  // Calls `f` with the stream that carries HTTP.
  template <typename F>
  void WithStream(F f) {
    if (tls_) {
      f(*tls_);
    } else {
      f(socket_);
    }
  }

  Pool& pool_;
  const std::shared_ptr<Origin> origin_;
  Tcp::resolver resolver_;
  Tcp::socket socket_;
  std::optional<asio::ssl::stream<Tcp::socket&>> tls_;
  boost::beast::flat_buffer in_;
  std::optional<http::response_parser<http::string_body>> parser_;
  CallPtr call_;
  bool closed_ = false;
  bool reused_ = false;
  bool write_failed_ = false;
  SteadyPoint idle_since_;
};

// ---- Connection

void HttpClient::Pool::Connection::Open(const CallPtr& call) {
  call_ = call;
  call_->connection = shared_from_this();
  ErrorCode ec;
  auto address = asio::ip::make_address(origin_->url.host, ec);
  const Url& url = origin_->url;
  if (!ec) {
    auto port = static_cast<uint16_t>(std::stoi(url.port));
    ConnectTo(
        Tcp::resolver::results_type::create(Tcp::endpoint(address, port), url.host, url.port));
    return;
  }
  resolver_.async_resolve(
      url.host, url.port,
      [self = shared_from_this()](ErrorCode ec, const Tcp::resolver::results_type& endpoints) {
        if (self->closed_) return;
        if (ec) {
          return self->Fail(Unavailable(fmt::format("Host {} cannot be resolved: {}.",
                                                    self->origin_->url.host, ec.message())));
        }
        self->ConnectTo(endpoints);
      });
}

void HttpClient::Pool::Connection::ConnectTo(const Tcp::resolver::results_type& endpoints) {
  asio::async_connect(
      socket_, endpoints,
      [self = shared_from_this()](ErrorCode ec, const Tcp::endpoint&) { self->OnConnected(ec); });
}

void HttpClient::Pool::Connection::OnConnected(ErrorCode ec) {
  if (closed_) return;
  if (ec) {
    return Fail(Unavailable(fmt::format("Cannot connect to {}: {}.", Where(), ec.message())));
  }
  ErrorCode ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);
  if (origin_->url.tls) return Handshake();
  WriteRequest();
}

void HttpClient::Pool::Connection::Handshake() {
  const std::string& host = origin_->url.host;
  tls_.emplace(socket_, pool_.tls_context_);
  ErrorCode ec;
  tls_->set_verify_mode(asio::ssl::verify_peer, ec);
  if (!ec) tls_->set_verify_callback(asio::ssl::host_name_verification(host), ec);
  if (ec) return Fail(Internal(fmt::format("TLS cannot be set up: {}.", ec.message())));
  asio::ip::make_address(host, ec);
  // Server names are for names only.
  if (ec) SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
  tls_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](ErrorCode ec) {
    if (self->closed_) return;
    if (ec) {
      return self->Fail(
          Unavailable(fmt::format("TLS with {} failed: {}.", self->Where(), ec.message())));
    }
    self->WriteRequest();
  });
}

void HttpClient::Pool::Connection::Run(const CallPtr& call) {
  reused_ = true;
  call_ = call;
  call_->connection = shared_from_this();
  WriteRequest();
}

void HttpClient::Pool::Connection::WriteRequest() {
  // The buffers live as long as the call, which the handler keeps.
  std::array<asio::const_buffer, 2> parts = {asio::buffer(call_->head), asio::buffer(call_->body)};
  WithStream([&](auto& stream) {
    asio::async_write(stream, parts,
                      [self = shared_from_this(), call = call_](ErrorCode ec, size_t) {
                        if (self->closed_) return;
                        // A server may answer and close before it has read everything, so a failed
                        // write is not the last word.
                        self->write_failed_ = static_cast<bool>(ec);
                        self->ReadResponse();
                      });
  });
}

void HttpClient::Pool::Connection::ReadResponse() {
  parser_.emplace();
  parser_->body_limit(pool_.options_.response_bytes_max);
  parser_->header_limit(kResponseHeaderMax);
  if (call_->is_head_method) parser_->skip(true);
  WithStream([&](auto& stream) {
    http::async_read(stream, in_, *parser_,
                     [self = shared_from_this()](ErrorCode ec, size_t) { self->OnResponse(ec); });
  });
}

void HttpClient::Pool::Connection::OnResponse(ErrorCode ec) {
  if (closed_) return;
  if (ec == http::error::body_limit) {
    return Fail(ResourceExhausted(fmt::format("The answer of {} is larger than {} bytes.", Where(),
                                              pool_.options_.response_bytes_max)));
  }
  if (ec) {
    bool nothing_came = !parser_->got_some() && in_.size() == 0;
    if (nothing_came && reused_ && !call_->resent) {
      CallPtr call = call_;
      call->resent = true;
      call->origin->waiting.push_front(call);
      return Drop();
    }
    return Fail(Unavailable(
        nothing_came ? fmt::format("{} closed the connection without an answer.", Where())
                     : fmt::format("The answer of {} is broken: {}.", Where(), ec.message())));
  }
  auto message = parser_->release();
  if (message.result_int() < 200) return ReadResponse();
  HttpResponse response;
  response.status = static_cast<int>(message.result_int());
  response.content_type.clear();
  for (const auto& field : message) {
    auto name = field.name_string();
    auto value = field.value();
    if (field.name() == http::field::content_type)
      response.content_type.assign(value.data(), value.size());
    response.headers.emplace_back(std::string(name.data(), name.size()),
                                  std::string(value.data(), value.size()));
  }
  response.body = std::move(message.body());
  CallPtr call = std::move(call_);
  call->connection = nullptr;
  bool keep = message.keep_alive() && !write_failed_ && in_.size() == 0;
  if (keep) {
    pool_.OnIdle(shared_from_this());
  } else {
    Drop();
  }
  pool_.Finish(call, std::move(response));
}

void HttpClient::Pool::Connection::Fail(const Status& status) {
  CallPtr call = call_;
  Drop();
  if (call != nullptr) pool_.Finish(call, status);
}

void HttpClient::Pool::Connection::Drop() {
  if (closed_) return;
  closed_ = true;
  auto self = shared_from_this();
  resolver_.cancel();
  ErrorCode ignored;
  socket_.close(ignored);
  if (call_ != nullptr) call_->connection = nullptr;
  call_ = nullptr;
  pool_.OnEnded(origin_);
}

bool HttpClient::Pool::Connection::IsUsable() const {
  char byte;
  auto fd = const_cast<Tcp::socket&>(socket_).native_handle();
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// ---- Pool

HttpClient::Pool::Pool(HttpClientOptions options)
    : options_(std::move(options)),
      context_(1),
      guard_(context_.get_executor()),
      tls_context_(asio::ssl::context::tls_client),
      sweep_(context_) {
  ErrorCode ec;
  if (options_.ca_file.empty()) {
    tls_context_.set_default_verify_paths(ec);
  } else {
    tls_context_.load_verify_file(options_.ca_file, ec);
  }
  if (ec) {
    tls_status_ = Unavailable(fmt::format("The certificates in \"{}\" cannot be used: {}.",
                                          options_.ca_file, ec.message()));
  }
}

void HttpClient::Pool::Send(HttpCall http_call, Done done) {
  auto call = std::make_shared<Call>(context_);
  call->done = std::move(done);
  call->timeout = http_call.timeout;
  call->is_head_method = http_call.method == "HEAD";
  Status status;
  auto url = ParseUrl(http_call.url);
  if (url.ok()) {
    auto head = RequestHead(http_call, *url);
    status = head.status();
    if (head.ok()) call->head = std::move(*head);
    if (head.ok() && url->tls) status = tls_status_;
  } else {
    status = url.status();
  }
  call->body = std::move(http_call.body);
  if (!status.ok()) {
    asio::post(context_, [call, status] { call->done(status); });
    return;
  }
  asio::post(context_, [this, call, url = *std::move(url)]() mutable {
    if (stopping_) return call->done(Cancelled("The HTTP client is shutting down."));
    Begin(std::move(url), call);
  });
}

void HttpClient::Pool::Begin(Url url, const CallPtr& call) {
  auto& origin = origins_[KeyOf(url)];
  if (origin == nullptr) {
    origin = std::make_shared<Origin>();
    origin->url = std::move(url);
  }
  call->origin = origin;
  calls_.insert(call);
  call->deadline.expires_after(call->timeout);
  call->deadline.async_wait([this, call](ErrorCode ec) {
    if (!ec && calls_.count(call) > 0) OnDeadline(call);
  });
  call->origin->waiting.push_back(call);
  Serve(call->origin);
}

void HttpClient::Pool::Serve(const std::shared_ptr<Origin>& origin) {
  while (!origin->waiting.empty()) {
    CallPtr call = origin->waiting.front();
    // What was lost on a reused connection must not meet the next stale one.
    if (!call->resent && !origin->idle.empty()) {
      auto connection = origin->idle.back();
      origin->idle.pop_back();
      if (connection->IsUsable()) {
        origin->waiting.pop_front();
        connection->Run(call);
      } else {
        connection->Drop();
      }
      continue;
    }
    if (origin->open >= options_.connections_per_host_max) {
      if (origin->idle.empty()) return;
      auto connection = origin->idle.front();
      origin->idle.erase(origin->idle.begin());
      connection->Drop();
      continue;
    }
    origin->waiting.pop_front();
    ++origin->open;
    std::make_shared<Connection>(*this, origin)->Open(call);
  }
}

void HttpClient::Pool::Finish(const CallPtr& call, StatusOr<HttpResponse> result) {
  if (calls_.erase(call) == 0) return;
  call->deadline.cancel();
  Done done = std::move(call->done);
  done(std::move(result));
}

void HttpClient::Pool::OnDeadline(const CallPtr& call) {
  auto& waiting = call->origin->waiting;
  waiting.erase(std::remove(waiting.begin(), waiting.end(), call), waiting.end());
  if (auto connection = call->connection) connection->Drop();
  auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(call->timeout).count();
  const Url& url = call->origin->url;
  Finish(call, DeadlineExceeded(
                   fmt::format("{}:{} gave no answer within {} ms.", url.host, url.port, millis)));
}

void HttpClient::Pool::OnEnded(const std::shared_ptr<Origin>& origin) {
  --origin->open;
  if (stopping_) return;
  Serve(origin);
  if (origin->open == 0 && origin->waiting.empty()) origins_.erase(KeyOf(origin->url));
}

void HttpClient::Pool::OnIdle(const std::shared_ptr<Connection>& connection) {
  connection->set_idle_since(Now());
  connection->origin()->idle.push_back(connection);
  ArmSweep();
  Serve(connection->origin());
}

void HttpClient::Pool::ArmSweep() {
  if (sweep_armed_ || stopping_) return;
  sweep_armed_ = true;
  sweep_.expires_after(options_.idle_timeout / 2 + std::chrono::milliseconds(1));
  sweep_.async_wait([this](ErrorCode) {
    sweep_armed_ = false;
    if (!stopping_) Sweep();
  });
}

void HttpClient::Pool::Sweep() {
  SteadyPoint oldest = Now() - options_.idle_timeout;
  bool some_idle = false;
  std::vector<std::shared_ptr<Connection>> expired;
  for (const auto& [key, origin] : origins_) {
    auto& idle = origin->idle;
    // Idle connections are used last in, first out, so the oldest are in front.
    auto fresh = std::find_if(idle.begin(), idle.end(),
                              [&](const auto& each) { return each->idle_since() > oldest; });
    expired.insert(expired.end(), idle.begin(), fresh);
    idle.erase(idle.begin(), fresh);
    some_idle = some_idle || !idle.empty();
  }
  for (const auto& connection : expired) connection->Drop();
  if (some_idle) ArmSweep();
}

void HttpClient::Pool::CancelAll() {
  stopping_ = true;
  guard_.reset();
  sweep_.cancel();
  auto calls = std::move(calls_);
  calls_.clear();
  for (const auto& call : calls) {
    call->deadline.cancel();
    if (auto connection = call->connection) connection->Drop();
  }
  for (const auto& [key, origin] : origins_) {
    for (const auto& connection : std::exchange(origin->idle, {})) connection->Drop();
    origin->waiting.clear();
  }
  origins_.clear();
  for (const auto& call : calls) call->done(Cancelled("The HTTP client is shutting down."));
}

void HttpClient::Pool::Stop() {
  asio::post(context_, [this] { CancelAll(); });
  thread_.join();
  // Sent by callbacks of the last moment.
  context_.restart();
  context_.poll();
}

// ---- Client

HttpClient::HttpClient(HttpClientOptions options)
    : pool_(std::make_shared<Pool>(std::move(options))) {
  pool_->Start();
}

HttpClient::~HttpClient() { pool_->Stop(); }

void HttpClient::Send(HttpCall call, Callback<void(StatusOr<HttpResponse>)> done) {
  pool_->Send(std::move(call), std::move(done));
}

}  // namespace millrace::net
