#include "net/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <optional>
#include <thread>
#include <unordered_set>

#include "base/log.h"
#include "base/mutex.h"
#include "net/gzip.h"
#include "net/http_exchange.h"
#include "net/http_head.h"
#include "net/socket.h"

namespace millrace::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using Socket = asio::basic_stream_socket<Tcp, asio::io_context::executor_type>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;
using ErrorCode = boost::system::error_code;
using SteadyPoint = std::chrono::steady_clock::time_point;

constexpr size_t kHeaderChunk = 8 << 10;
constexpr size_t kBodyChunk = 64 << 10;
// What is read ahead while a request is being handled. Beyond it the connection is not watched, so
// such a client's leaving is noticed only by the write.
constexpr size_t kReadAheadMax = 64 << 10;
// How long a connection that we close may go on sending before we stop listening to it.
constexpr Duration kLingerMax = std::chrono::seconds(5);
constexpr Duration kSweepMin = std::chrono::milliseconds(5);
constexpr Duration kSweepMax = std::chrono::seconds(1);

SteadyPoint Now() { return std::chrono::steady_clock::now(); }

bool EqualsNoCase(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

std::string_view View(boost::beast::string_view s) { return {s.data(), s.size()}; }

// What a request that cannot be parsed is answered with.
HttpResponse ParseErrorResponse(ErrorCode ec, const HttpServerOptions& options) {
  if (ec == http::error::body_limit) {
    return HttpError(
        413, "INVALID_ARGUMENT",
        fmt::format("The request body is larger than {} bytes.", options.body_bytes_max));
  }
  if (ec == http::error::header_limit) {
    return HttpError(
        431, "INVALID_ARGUMENT",
        fmt::format("The request header is larger than {} bytes.", options.header_bytes_max));
  }
  if (ec == http::error::bad_version) {
    return HttpError(505, "INVALID_ARGUMENT", "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
  }
  return HttpError(400, "INVALID_ARGUMENT",
                   fmt::format("The request is not valid HTTP/1.1: {}.", ec.message()));
}

}  // namespace

// One thread and its connections. Everything but Post belongs to that thread.
class HttpServer::Loop : public HttpThread, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const HttpServerOptions& options, const HttpHandler& handler)
      : options_(options),
        handler_(handler),
        context_(1),
        guard_(context_.get_executor()),
        sweep_(context_) {
    Duration shortest =
        std::min({options.idle_timeout, options.header_timeout, options.stall_timeout});
    sweep_interval_ = std::clamp(shortest / 4, kSweepMin, kSweepMax);
  }

  void Start() {
    thread_ = std::thread([this] {
      current = this;
      context_.run();
    });
  }
  bool Post(Task task) override {
    MutexLock lock(mutex_);
    if (ended_) return false;
    asio::post(context_, std::move(task));
    return true;
  }
  bool IsCurrent() const override { return current == this; }

  void Adopt(int fd);
  void Remove(const std::shared_ptr<Connection>& connection);
  // Closes what is idle and lets the thread end when the rest is done.
  void BeginStop();
  void CloseAll();
  // Waits until no connection is left after BeginStop, at most until `until`.
  void WaitUntilEmpty(SteadyPoint until);
  void Join();

  const HttpServerOptions& options() const { return options_; }
  const HttpHandler& handler() const { return handler_; }
  asio::io_context& context() { return context_; }
  bool stopping() const { return stopping_; }
  // Value of the Date header.
  const std::string& Date();

 private:
  void ArmSweep();
  void Sweep();
  void EndIfEmpty();

  static thread_local const Loop* current;

  // Copies: responders may keep a loop alive beyond its server.
  const HttpServerOptions options_;
  const HttpHandler handler_;
  asio::io_context context_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> guard_;
  Timer sweep_;
  bool sweep_armed_ = false;
  Duration sweep_interval_;
  bool stopping_ = false;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  time_t date_second_ = 0;
  std::string date_;
  std::thread thread_;

  Mutex mutex_;
  CondVar empty_changed_;
  bool empty_ MR_GUARDED_BY(mutex_) = false;
  bool ended_ MR_GUARDED_BY(mutex_) = false;
};

// One connection, from Start until it is closed; on its loop's thread. The loop owns it, and so
// does each asynchronous call under way. Data is read only after the socket is readable, so a
// waiting connection needs no buffer and one wait can stand while a request is being handled: that
// is how a leaving client is noticed.
class HttpServer::Connection : public HttpAnswerSink,
                               public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, Socket socket, std::string peer)
      : loop_(loop), socket_(std::move(socket)), peer_(std::move(peer)) {}

  void Start() {
    deadline_ = Now() + loop_.options().idle_timeout;
    Watch();
  }
  void Answer(const HttpExchange* exchange, HttpResponse response) override;
  // Between requests it closes at once, else with the next answer.
  void BeginStop();
  void Close();
  bool Expired(SteadyPoint now) const { return now >= deadline_; }
  void OnExpired();

 private:
  enum class Phase { kIdle, kHeader, kBody, kHandling, kWriting, kLingering, kClosed };

  void Watch();
  void OnReadable(ErrorCode ec);
  // The client has closed its sending side, or (`broken`) the connection is lost.
  void OnLeft(bool broken);
  void Advance();
  void ContinueIfExpected();
  void Dispatch();
  Status DecodeBody(const http::request<http::string_body>& request, std::string* body);
  void Reject(const HttpResponse& response);
  void Write(HttpResponse response);
  void OnWritten(ErrorCode ec);
  void Linger();

  Loop& loop_;
  Socket socket_;
  const std::string peer_;
  Phase phase_ = Phase::kIdle;
  SteadyPoint deadline_;
  bool watching_ = false;
  bool left_ = false;  // the client will send no more
  boost::beast::flat_buffer in_;
  std::optional<http::request_parser<http::string_body>> parser_;
  // The request in hand.
  std::shared_ptr<HttpExchange> exchange_;
  bool in_handler_ = false;
  std::optional<HttpResponse> early_answer_;  // given before the handler returned
  bool keep_alive_ = false;
  bool http10_ = false;
  bool head_ = false;
  std::string out_head_;
  std::string out_body_;
};

// ---- Connection: reading

void HttpServer::Connection::Watch() {
  if (watching_ || left_) return;
  watching_ = true;
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](ErrorCode ec) { self->OnReadable(ec); });
}

void HttpServer::Connection::OnReadable(ErrorCode ec) {
  watching_ = false;
  if (phase_ == Phase::kClosed || ec == asio::error::operation_aborted) return;
  if (ec) return OnLeft(true);
  size_t chunk = phase_ == Phase::kBody ? kBodyChunk : kHeaderChunk;
  auto space = in_.prepare(chunk);
  ssize_t got = recv(socket_.native_handle(), space.data(), chunk, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Watch();
  if (got <= 0) return OnLeft(got < 0);
  in_.commit(static_cast<size_t>(got));
  switch (phase_) {
    case Phase::kHandling:
    case Phase::kWriting:
      if (in_.size() < kReadAheadMax) Watch();
      return;
    case Phase::kLingering:
      in_.clear();
      return Watch();
    case Phase::kBody:
      deadline_ = Now() + loop_.options().stall_timeout;
      return Advance();
    default:
      return Advance();
  }
}

void HttpServer::Connection::OnLeft(bool broken) {
  left_ = true;
  bool answering = phase_ == Phase::kHandling || phase_ == Phase::kWriting;
  if (broken || !answering) return Close();
  if (exchange_ != nullptr) {
    auto exchange = exchange_;
    exchange->Gone();
  }
}

void HttpServer::Connection::Advance() {
  while (true) {
    if (in_.size() == 0) {
      if (left_) return Close();
      if (phase_ == Phase::kIdle && in_.capacity() > kHeaderChunk) in_.shrink_to_fit();
      return Watch();
    }
    if (!parser_) {
      parser_.emplace();
      parser_->eager(true);
      parser_->header_limit(static_cast<uint32_t>(loop_.options().header_bytes_max));
      parser_->body_limit(loop_.options().body_bytes_max);
      phase_ = Phase::kHeader;
      deadline_ = Now() + loop_.options().header_timeout;
    }
    ErrorCode ec;
    size_t used = parser_->put(in_.data(), ec);
    in_.consume(used);
    if (ec && ec != http::error::need_more) {
      return Reject(ParseErrorResponse(ec, loop_.options()));
    }
    if (parser_->is_done()) return Dispatch();
    if (phase_ == Phase::kHeader && parser_->is_header_done()) {
      phase_ = Phase::kBody;
      deadline_ = Now() + loop_.options().stall_timeout;
      if (in_.size() == 0) ContinueIfExpected();
    }
    if (ec == http::error::need_more || used == 0) {
      if (left_) return Close();
      return Watch();
    }
  }
}

void HttpServer::Connection::ContinueIfExpected() {
  const auto& request = parser_->get();
  if (request.version() < 11 || !EqualsNoCase(View(request[http::field::expect]), "100-continue")) {
    return;
  }
  // A few bytes into an empty send buffer: they fit, or the client does not read at all.
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (send(socket_.native_handle(), kContinue.data(), kContinue.size(),
           MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    MR_LOG(kDebug, "100 Continue to {} could not be sent", peer_);
  }
}

// ---- Connection: handling

Status HttpServer::Connection::DecodeBody(const http::request<http::string_body>& request,
                                          std::string* body) {
  std::string_view coding = View(request[http::field::content_encoding]);
  if (coding.empty() || EqualsNoCase(coding, "identity")) return OkStatus();
  if (!EqualsNoCase(coding, "gzip") && !EqualsNoCase(coding, "x-gzip")) {
    return Unimplemented(
        fmt::format("Content-Encoding \"{}\" is not supported; send gzip or no encoding.", coding));
  }
  MR_ASSIGN_OR_RETURN(*body, Gunzip(*body, loop_.options().body_bytes_max));
  return OkStatus();
}

void HttpServer::Connection::Dispatch() {
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !loop_.stopping();
  http10_ = message.version() < 11;
  head_ = message.method() == http::verb::head;
  parser_.reset();
  phase_ = Phase::kHandling;
  deadline_ = SteadyPoint::max();

  std::string body = std::move(message.body());
  if (Status status = DecodeBody(message, &body); !status.ok()) {
    int code = status.code() == StatusCode::kResourceExhausted ? 413
               : status.code() == StatusCode::kUnimplemented   ? 415
                                                               : 400;
    return Write(HttpError(code, "INVALID_ARGUMENT", MessageOf(status)));
  }
  HttpRequest request;
  request.method = std::string(View(message.method_string()));
  request.target = std::string(View(message.target()));
  for (const auto& field : message) {
    request.headers.emplace_back(View(field.name_string()), View(field.value()));
  }
  request.body = SharedBytes(std::move(body));
  request.peer = peer_;
  exchange_ = std::make_shared<HttpExchange>(loop_.shared_from_this(), weak_from_this());
  if (left_) exchange_->Gone();
  in_handler_ = true;
  loop_.handler()(std::move(request), HttpResponder(exchange_));
  in_handler_ = false;
  if (early_answer_) {
    HttpResponse answer = std::move(*early_answer_);
    early_answer_.reset();
    return Write(std::move(answer));
  }
  if (in_.size() < kReadAheadMax) Watch();
}

void HttpServer::Connection::Answer(const HttpExchange* exchange, HttpResponse response) {
  if (phase_ != Phase::kHandling || exchange_.get() != exchange) return;
  if (in_handler_) {
    early_answer_ = std::move(response);
    return;
  }
  Write(std::move(response));
}

void HttpServer::Connection::Reject(const HttpResponse& response) {
  keep_alive_ = false;
  Write(response);
}

// ---- Connection: writing and the end

void HttpServer::Connection::Write(HttpResponse response) {
  phase_ = Phase::kWriting;
  exchange_.reset();
  keep_alive_ = keep_alive_ && !loop_.stopping();
  AfterResponse after = !keep_alive_ ? AfterResponse::kClose
                        : http10_    ? AfterResponse::kKeepOpenHttp10
                                     : AfterResponse::kKeepOpen;
  out_head_ = ResponseHead(response, loop_.Date(), after);
  out_body_ = HasBody(response.status) && !head_ ? std::move(response.body) : std::string();
  Duration stall = loop_.options().stall_timeout;
  deadline_ = Now() + stall;
  std::array<asio::const_buffer, 2> parts = {asio::buffer(out_head_), asio::buffer(out_body_)};
  auto self = shared_from_this();
  asio::async_write(
      socket_, parts,
      [self, stall](ErrorCode ec, size_t written) -> size_t {
        if (ec) return 0;
        if (written > 0) self->deadline_ = Now() + stall;
        return kBodyChunk * 16;
      },
      [self](ErrorCode ec, size_t) { self->OnWritten(ec); });
}

void HttpServer::Connection::OnWritten(ErrorCode ec) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return Close();
  out_body_ = std::string();
  parser_.reset();
  if (!keep_alive_) return Linger();
  phase_ = Phase::kIdle;
  deadline_ = Now() + loop_.options().idle_timeout;
  if (loop_.stopping() && in_.size() == 0) return Close();
  Advance();
}

// Closing a socket that holds unread bytes resets the connection, and the client may lose the
// answer it was sent. So what it still sends is read and thrown away for a while.
void HttpServer::Connection::Linger() {
  if (left_) return Close();
  phase_ = Phase::kLingering;
  deadline_ = Now() + kLingerMax;
  in_.clear();
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  Watch();
}

void HttpServer::Connection::OnExpired() {
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      return Reject(HttpError(408, "DEADLINE_EXCEEDED", "The request did not arrive in time."));
    default:
      return Close();
  }
}

void HttpServer::Connection::BeginStop() {
  if (phase_ == Phase::kIdle && in_.size() == 0) Close();
}

void HttpServer::Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  auto self = shared_from_this();
  ErrorCode ignored;
  socket_.close(ignored);
  loop_.Remove(self);
  if (auto exchange = std::move(exchange_)) exchange->Gone();
}

// ---- Loop

thread_local const HttpServer::Loop* HttpServer::Loop::current = nullptr;

void HttpServer::Loop::Adopt(int fd) {
  if (stopping_) {
    close(fd);
    return;
  }
  PrepareSocket(fd);
  std::string peer = PeerOf(fd);
  Socket socket(context_);
  ErrorCode ec;
  socket.assign(IsIpv6(fd) ? Tcp::v6() : Tcp::v4(), fd, ec);
  if (ec) {
    MR_LOG(kWarning, "A connection of {} could not be served: {}", peer, ec.message());
    close(fd);
    return;
  }
  socket.non_blocking(true, ec);
  auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(peer));
  connections_.insert(connection);
  ArmSweep();
  connection->Start();
}

void HttpServer::Loop::Remove(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  if (connections_.empty()) sweep_.cancel();
  EndIfEmpty();
}

void HttpServer::Loop::ArmSweep() {
  if (sweep_armed_) return;
  sweep_armed_ = true;
  sweep_.expires_after(sweep_interval_);
  sweep_.async_wait([this](ErrorCode) {
    sweep_armed_ = false;
    if (!connections_.empty()) Sweep();
  });
}

void HttpServer::Loop::Sweep() {
  SteadyPoint now = Now();
  std::vector<std::shared_ptr<Connection>> expired;
  for (const auto& connection : connections_) {
    if (connection->Expired(now)) expired.push_back(connection);
  }
  for (const auto& connection : expired) connection->OnExpired();
  if (!connections_.empty()) ArmSweep();
}

const std::string& HttpServer::Loop::Date() {
  time_t second = time(nullptr);
  if (second != date_second_) {
    date_second_ = second;
    date_ = HttpDate(second);
  }
  return date_;
}

void HttpServer::Loop::BeginStop() {
  stopping_ = true;
  std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->BeginStop();
  EndIfEmpty();
}

void HttpServer::Loop::CloseAll() {
  std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->Close();
  EndIfEmpty();
}

void HttpServer::Loop::EndIfEmpty() {
  if (!stopping_ || !connections_.empty()) return;
  guard_.reset();
  MutexLock lock(mutex_);
  empty_ = true;
  empty_changed_.NotifyAll();
}

void HttpServer::Loop::WaitUntilEmpty(SteadyPoint until) {
  MutexLock lock(mutex_);
  while (!empty_) {
    auto left = until - Now();
    if (left <= left.zero()) return;
    empty_changed_.WaitFor(mutex_, left);
  }
}

void HttpServer::Loop::Join() {
  if (!thread_.joinable()) return;
  thread_.join();
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  // What was posted between the thread's end and now.
  context_.restart();
  context_.poll();
}

// ---- Server

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler)
    : options_(options), handler_(std::move(handler)) {
  for (int i = 0; i < std::max(1, options_.threads); ++i) {
    loops_.push_back(std::make_shared<Loop>(options_, handler_));
  }
  for (const auto& loop : loops_) loop->Start();
}

HttpServer::~HttpServer() { Stop(Duration::zero()); }

StatusOr<int> HttpServer::Listen(std::vector<std::string> hosts, int port) {
  PortMux::Routes routes;
  // An HTTP/2 client gets an answer it can read something from.
  routes.grpc = [this](int fd) { Adopt(fd); };
  routes.http = [this](int fd) { Adopt(fd); };
  MR_ASSIGN_OR_RETURN(auto mux, PortMux::Start(std::move(hosts), port, std::move(routes)));
  listeners_.push_back(std::move(mux));
  return listeners_.back()->port();
}

void HttpServer::Adopt(int fd) {
  auto loop = loops_[next_loop_.fetch_add(1, std::memory_order_relaxed) % loops_.size()];
  bool posted = loop->Post([loop = loop.get(), fd] { loop->Adopt(fd); });
  if (!posted) close(fd);
}

void HttpServer::Stop(Duration grace) {
  for (const auto& listener : listeners_) listener->Stop();
  SteadyPoint until = Now() + grace;
  for (const auto& loop : loops_) loop->Post([loop = loop.get()] { loop->BeginStop(); });
  for (const auto& loop : loops_) loop->WaitUntilEmpty(until);
  for (const auto& loop : loops_) loop->Post([loop = loop.get()] { loop->CloseAll(); });
  for (const auto& loop : loops_) loop->Join();
}

}  // namespace millrace::net
