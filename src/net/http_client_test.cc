#include "net/http_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <deque>
#include <optional>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "net/http_server.h"
#include "net/socket.h"
#include "net/test_socket.h"

namespace millrace::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The result of one call.
class Result {
 public:
  Callback<void(StatusOr<HttpResponse>)> Done() {
    return [state = state_](StatusOr<HttpResponse> result) {
      MutexLock lock(state->mutex);
      MR_CHECK(!state->result);
      state->result = std::move(result);
      state->changed.NotifyAll();
    };
  }
  bool ready() {
    MutexLock lock(state_->mutex);
    return state_->result.has_value();
  }
  StatusOr<HttpResponse> Get() {
    MutexLock lock(state_->mutex);
    while (!state_->result) MR_CHECK(state_->changed.WaitFor(state_->mutex, seconds(20)));
    return *state_->result;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<StatusOr<HttpResponse>> result;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

StatusOr<HttpResponse> Call(HttpClient& client, HttpCall call) {
  Result result;
  client.Send(std::move(call), result.Done());
  return result.Get();
}

HttpCall To(int port, std::string path = "/") {
  HttpCall call;
  call.url = fmt::format("http://127.0.0.1:{}{}", port, path);
  return call;
}

// Requests waiting for the test to answer them.
class Inbox {
 public:
  HttpHandler Handler() {
    return [this](HttpRequest request, HttpResponder responder) {
      MutexLock lock(mutex_);
      queue_.emplace_back(std::move(request), std::move(responder));
      changed_.NotifyAll();
    };
  }
  std::pair<HttpRequest, HttpResponder> Take() {
    MutexLock lock(mutex_);
    while (queue_.empty()) MR_CHECK(changed_.WaitFor(mutex_, seconds(20)));
    auto front = std::move(queue_.front());
    queue_.pop_front();
    return front;
  }
  size_t size() {
    MutexLock lock(mutex_);
    return queue_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<HttpRequest, HttpResponder>> queue_;
};

class HttpClientTest : public testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    server_.emplace(options, inbox_.Handler());
    auto port = server_->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }
  void ListenRaw() {
    auto listeners = ListenTcp({"127.0.0.1"}, 0);
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    listeners_ = std::move(*listeners);
    port_ = listeners_.port;
  }

  Inbox inbox_;
  std::optional<HttpServer> server_;
  Listeners listeners_;
  int port_ = 0;
};

TEST_F(HttpClientTest, RequestAndAnswerAreWhole) {
  StartServer();
  HttpClient client({});
  HttpCall call = To(port_, "/push?x=1");
  call.headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer t"}};
  call.body = std::string(300000, 'b');
  Result result;
  client.Send(call, result.Done());
  auto [request, responder] = inbox_.Take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/push?x=1");
  EXPECT_EQ(*request.Header("authorization"), "Bearer t");
  EXPECT_EQ(*request.Header("host"), fmt::format("127.0.0.1:{}", port_));
  EXPECT_TRUE(request.body.view() == call.body);
  HttpResponse answer;
  answer.status = 503;
  answer.headers = {{"X-A", "1"}};
  answer.body = std::string(400000, 'a');
  responder.Send(answer);
  auto response = result.Get();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->content_type, "application/json");
  EXPECT_EQ(*FindHeader(response->headers, "x-a"), "1");
  EXPECT_TRUE(response->body == answer.body);
}

TEST_F(HttpClientTest, ConnectionsAreReusedAndBounded) {
  StartServer();
  HttpClientOptions options;
  options.connections_per_host_max = 2;
  HttpClient client(options);
  std::vector<Result> results(20);
  for (auto& result : results) client.Send(To(port_), result.Done());
  std::set<std::string> peers;
  auto first = inbox_.Take();
  peers.insert(first.first.peer);
  for (size_t i = 1; i < results.size(); ++i) {
    // The first request keeps its connection all the time, so the rest goes over the other one.
    auto [request, responder] = inbox_.Take();
    EXPECT_EQ(inbox_.size(), 0u);
    peers.insert(request.peer);
    responder.Send({});
  }
  first.second.Send({});
  for (auto& result : results) EXPECT_TRUE(result.Get().ok());
  EXPECT_EQ(peers.size(), 2u);
}

TEST_F(HttpClientTest, DeadlineUnderWayAndInLine) {
  StartServer();
  HttpClientOptions options;
  options.connections_per_host_max = 1;
  HttpClient client(options);
  HttpCall call = To(port_);
  call.timeout = milliseconds(30);
  Result under_way;
  Result in_line;
  client.Send(call, under_way.Done());
  call.timeout = milliseconds(20);
  client.Send(call, in_line.Done());
  EXPECT_EQ(in_line.Get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(MessageOf(under_way.Get().status()),
            fmt::format("127.0.0.1:{} gave no answer within 30 ms.", port_));
  // The connection that was given up is not used again.
  auto [request, responder] = inbox_.Take();
  Result next;
  client.Send(To(port_), next.Done());
  auto [next_request, next_responder] = inbox_.Take();
  EXPECT_NE(next_request.peer, request.peer);
  next_responder.Send({});
  EXPECT_TRUE(next.Get().ok());
}

TEST_F(HttpClientTest, NobodyThere) {
  ListenRaw();
  listeners_ = {};
  HttpClient client({});
  auto refused = Call(client, To(port_));
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(MessageOf(refused.status())), HasSubstr("Connection refused"));
  HttpCall unknown;
  unknown.url = "http://no-such-host.invalid/";
  EXPECT_EQ(Call(client, unknown).status().code(), StatusCode::kUnavailable);
}

TEST_F(HttpClientTest, MisuseIsRefused) {
  HttpClient client({});
  HttpCall call;
  call.url = "nonsense";
  EXPECT_EQ(Call(client, call).status().code(), StatusCode::kInvalidArgument);
  call = To(1);
  call.headers = {{"X", "a\r\nY: b"}};
  EXPECT_EQ(Call(client, call).status().code(), StatusCode::kInvalidArgument);
  call = To(1);
  call.method = "GET /";
  EXPECT_EQ(Call(client, call).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(HttpClientTest, ServerThatClosesIdleConnectionsIsNoTrouble) {
  HttpServerOptions server_options;
  server_options.idle_timeout = milliseconds(20);
  StartServer(server_options);
  HttpClient client({});
  for (int i = 0; i < 5; ++i) {
    Result result;
    client.Send(To(port_), result.Done());
    inbox_.Take().second.Send({});
    EXPECT_TRUE(result.Get().ok());
    std::this_thread::sleep_for(milliseconds(i * 10));
  }
}

TEST_F(HttpClientTest, LostOnAReusedConnectionIsSentOnceMore) {
  ListenRaw();
  HttpClient client({});
  Result first;
  client.Send(To(port_, "/1"), first.Done());
  auto connection = TestSocket::Accept(listeners_);
  EXPECT_THAT(connection->ReadRequest(), HasSubstr("POST /1 "));
  connection->Send("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(first.Get()->status, 204);
  Result second;
  client.Send(To(port_, "/2"), second.Done());
  EXPECT_THAT(connection->ReadRequest(), HasSubstr("POST /2 "));
  connection->Close();
  auto fresh = TestSocket::Accept(listeners_);
  EXPECT_THAT(fresh->ReadRequest(), HasSubstr("POST /2 "));
  fresh->Close();
  // Lost on a fresh one: that is an answer.
  EXPECT_EQ(second.Get().status().code(), StatusCode::kUnavailable);
}

TEST_F(HttpClientTest, FormsOfAnswers) {
  ListenRaw();
  HttpClientOptions options;
  options.response_bytes_max = 1000;
  HttpClient client(options);
  auto answer = [&](const std::string& wire, const std::string& method = "POST") {
    HttpCall call = To(port_);
    call.method = method;
    Result result;
    client.Send(call, result.Done());
    auto connection = TestSocket::Accept(listeners_);
    connection->ReadRequest();
    connection->Send(wire);
    connection->ShutdownSend();
    return result.Get();
  };
  EXPECT_EQ(
      answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")->body,
      "abc");
  EXPECT_EQ(answer("HTTP/1.1 200 OK\r\n\r\nuntil the end")->body, "until the end");
  EXPECT_EQ(
      answer("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
          ->status,
      201);
  EXPECT_EQ(answer("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", "HEAD")->status, 200);
  EXPECT_EQ(answer("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(answer("garbage\r\n\r\n").status().code(), StatusCode::kUnavailable);
}

TEST_F(HttpClientTest, EndOfTheClientCancelsItsCalls) {
  StartServer();
  HttpClientOptions options;
  options.connections_per_host_max = 1;
  auto client = std::make_unique<HttpClient>(options);
  Result idle;
  client->Send(To(port_), idle.Done());
  inbox_.Take().second.Send({});
  EXPECT_TRUE(idle.Get().ok());
  Result under_way;
  Result in_line;
  client->Send(To(port_), under_way.Done());
  auto held = inbox_.Take();
  client->Send(To(port_), in_line.Done());
  client.reset();
  ASSERT_TRUE(under_way.ready());
  ASSERT_TRUE(in_line.ready());
  EXPECT_EQ(under_way.Get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(in_line.Get().status().code(), StatusCode::kCancelled);
}

// A TLS server with a certificate of its own for "localhost" that answers one call.
class TlsServer {
 public:
  TlsServer() {
    key_ = EVP_RSA_gen(2048);
    certificate_ = X509_new();
    X509_set_version(certificate_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate_), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate_), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), 3600);
    X509_set_pubkey(certificate_, key_);
    X509_NAME* name = X509_get_subject_name(certificate_);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate_, name);
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
    X509_add_ext(certificate_, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate_, key_, EVP_sha256());
    file_ = testing::TempDir() + fmt::format("net_ca_{}.pem", getpid());
    FILE* out = fopen(file_.c_str(), "w");
    PEM_write_X509(out, certificate_);
    fclose(out);
    context_ = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context_, certificate_);
    SSL_CTX_use_PrivateKey(context_, key_);
  }
  ~TlsServer() {
    SSL_CTX_free(context_);
    X509_free(certificate_);
    EVP_PKEY_free(key_);
    unlink(file_.c_str());
  }
  // False if the handshake fails.
  bool AnswerOnce(const Listeners& listeners) {
    auto socket = TestSocket::Accept(listeners);
    SSL* ssl = SSL_new(context_);
    SSL_set_fd(ssl, socket->fd());
    bool ok = SSL_accept(ssl) == 1;
    char bytes[4096];
    if (ok) ok = SSL_read(ssl, bytes, sizeof(bytes)) > 0;
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";
    if (ok) ok = SSL_write(ssl, answer.data(), static_cast<int>(answer.size())) > 0;
    SSL_free(ssl);
    return ok;
  }
  const std::string& file() const { return file_; }

 private:
  EVP_PKEY* key_;
  X509* certificate_;
  SSL_CTX* context_;
  std::string file_;
};

TEST_F(HttpClientTest, Tls) {
  ListenRaw();
  TlsServer tls;
  auto call = [&](HttpClientOptions options, const std::string& host, bool* served) {
    HttpClient client(options);
    HttpCall http_call;
    http_call.url = fmt::format("https://{}:{}/", host, port_);
    Result result;
    client.Send(http_call, result.Done());
    *served = tls.AnswerOnce(listeners_);
    return result.Get();
  };
  bool served = false;
  HttpClientOptions trusting;
  trusting.ca_file = tls.file();
  auto good = call(trusting, "localhost", &served);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->body, "secret");
  EXPECT_TRUE(served);
  // The certificate is for another name.
  EXPECT_EQ(call(trusting, "127.0.0.1", &served).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(served);
  // Nobody we know has signed it.
  EXPECT_EQ(call({}, "localhost", &served).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(served);

  HttpClientOptions no_file;
  no_file.ca_file = "/nonexistent.pem";
  HttpClient client(no_file);
  HttpCall http_call;
  http_call.url = "https://localhost/";
  EXPECT_THAT(std::string(MessageOf(Call(client, http_call).status())),
              HasSubstr("\"/nonexistent.pem\" cannot be used"));
}

// Many calls at once from several threads.
TEST_F(HttpClientTest, ManyCalls) {
  HttpServerOptions server_options;
  server_options.threads = 2;
  HttpServer server(server_options, [](HttpRequest request, HttpResponder responder) {
    HttpResponse response;
    response.body = std::string(request.body.view());
    responder.Send(std::move(response));
  });
  auto port = server.Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  HttpClientOptions options;
  options.connections_per_host_max = 8;
  HttpClient client(options);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Result> results(500);
      for (size_t i = 0; i < results.size(); ++i) {
        HttpCall call = To(*port);
        call.body = std::string(t * 1000 + i, 'x');
        client.Send(std::move(call), results[i].Done());
      }
      for (size_t i = 0; i < results.size(); ++i) {
        auto response = results[i].Get();
        if (response.ok() && response->body.size() == t * 1000 + i) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good.load(), 2000);
}

}  // namespace
}  // namespace millrace::net
