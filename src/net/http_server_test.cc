#include "net/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <random>
#include <thread>

#include "base/executor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/gzip.h"
#include "net/test_socket.h"

namespace millrace::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A flag that one thread raises and another waits for.
class Signal {
 public:
  void Raise() {
    MutexLock lock(mutex_);
    ++raised_;
    changed_.NotifyAll();
  }
  bool Wait(int count = 1) {
    MutexLock lock(mutex_);
    while (raised_ < count) {
      if (!changed_.WaitFor(mutex_, seconds(20))) return false;
    }
    return true;
  }
  int raised() {
    MutexLock lock(mutex_);
    return raised_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int raised_ = 0;
};

// Requests that the server has handed over and the test answers by itself.
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

HttpResponse Text(std::string body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

// "METHOD target|body".
void Echo(HttpRequest request, HttpResponder responder) {
  responder.Send(
      Text(request.method + " " + request.target + "|" + std::string(request.body.view())));
}

class HttpServerTest : public testing::Test {
 protected:
  void StartServer(HttpHandler handler, HttpServerOptions options = {}) {
    server_.emplace(options, std::move(handler));
    auto port = server_->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }

  Inbox inbox_;
  std::optional<HttpServer> server_;
  int port_ = 0;
};

TEST_F(HttpServerTest, RequestArrivesWhole) {
  StartServer(inbox_.Handler());
  TestSocket client(port_);
  client.Send(
      "PUT /v1/a%20b?c=d&e HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello");
  auto [request, responder] = inbox_.Take();
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.target, "/v1/a%20b?c=d&e");
  ASSERT_NE(request.Header("x-ONE"), nullptr);
  EXPECT_EQ(*request.Header("x-ONE"), "1");
  EXPECT_EQ(request.Header("x-two"), nullptr);
  EXPECT_EQ(request.body.view(), "hello");
  sockaddr_in own = {};
  socklen_t size = sizeof(own);
  getsockname(client.fd(), reinterpret_cast<sockaddr*>(&own), &size);
  EXPECT_EQ(request.peer, fmt::format("127.0.0.1:{}", ntohs(own.sin_port)));

  HttpResponse answer = Text("done");
  answer.status = 201;
  answer.headers = {{"X-Good", "yes"}, {"X-Split", "a\r\nX-Injected: b"}};
  responder.Send(answer);
  HttpResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(*FindHeader(response.headers, "content-type"), "text/plain");
  EXPECT_EQ(*FindHeader(response.headers, "x-good"), "yes");
  EXPECT_EQ(FindHeader(response.headers, "x-injected"), nullptr);
  EXPECT_NE(FindHeader(response.headers, "date"), nullptr);
}

TEST_F(HttpServerTest, KeepAliveAndClose) {
  StartServer(Echo);
  TestSocket client(port_);
  for (int i = 0; i < 5; ++i) {
    client.Send(fmt::format("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", i));
    EXPECT_EQ(client.ReadResponse().body, fmt::format("GET /{}|", i));
  }
  client.Send("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  HttpResponse response = client.ReadResponse();
  EXPECT_EQ(response.body, "GET /last|");
  EXPECT_EQ(*FindHeader(response.headers, "connection"), "close");
  EXPECT_TRUE(client.ReadEnd());

  TestSocket old(port_);
  old.Send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.ReadResponse().body, "GET /old|");
  EXPECT_TRUE(old.ReadEnd());
}

TEST_F(HttpServerTest, PipelinedAnswersKeepTheirOrder) {
  StartServer(inbox_.Handler());
  TestSocket client(port_);
  client.Send("GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
  auto [first, first_responder] = inbox_.Take();
  EXPECT_EQ(first.target, "/1");
  // More arrives while the first one waits.
  client.Send("GET /3 HTTP/1.1\r\n\r\nGET /4");
  first_responder.Send(Text("one"));
  EXPECT_EQ(client.ReadResponse().body, "one");
  for (int i = 2; i <= 3; ++i) {
    auto [request, responder] = inbox_.Take();
    EXPECT_EQ(request.target, fmt::format("/{}", i));
    responder.Send(Text(request.target));
    EXPECT_EQ(client.ReadResponse().body, fmt::format("/{}", i));
  }
  client.Send(" HTTP/1.1\r\n\r\n");
  auto [fourth, fourth_responder] = inbox_.Take();
  fourth_responder.Send(Text("four"));
  EXPECT_EQ(client.ReadResponse().body, "four");
}

TEST_F(HttpServerTest, ManyPipelinedRequestsBeyondReadAhead) {
  StartServer(Echo);
  TestSocket client(port_);
  constexpr int kCount = 20000;
  std::thread sender([&] {
    std::string all;
    for (int i = 0; i < kCount; ++i) all += fmt::format("GET /{} HTTP/1.1\r\n\r\n", i);
    client.Send(all);
  });
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    if (client.ReadResponse().body != fmt::format("GET /{}|", i)) ++wrong;
  }
  sender.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HttpServerTest, OneByteAtATime) {
  StartServer(Echo);
  TestSocket client(port_);
  std::string_view wire =
      "POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n";
  for (char c : wire) ASSERT_TRUE(client.Send({&c, 1}));
  EXPECT_EQ(client.ReadResponse().body, "POST /slow|abcdefg");
}

TEST_F(HttpServerTest, GzippedBodies) {
  HttpServerOptions options;
  options.body_bytes_max = 100000;
  StartServer(Echo, options);
  TestSocket client(port_);
  auto send = [&](std::string_view coding, const std::string& body) {
    client.Send(
        fmt::format("POST / HTTP/1.1\r\nContent-Encoding: {}\r\nContent-Length: {}\r\n\r\n{}",
                    coding, body.size(), body));
    return client.ReadResponse();
  };
  std::string plain(100000, 'p');
  EXPECT_EQ(send("gzip", Gzip(plain)).body, "POST /|" + plain);
  EXPECT_EQ(send("identity", "as is").body, "POST /|as is");
  HttpResponse too_large = send("GZIP", Gzip(plain + "p"));
  EXPECT_EQ(too_large.status, 413);
  EXPECT_THAT(too_large.body, HasSubstr("larger than 100000 bytes"));
  EXPECT_EQ(send("gzip", "not gzip").status, 400);
  EXPECT_EQ(send("br", "xx").status, 415);
  // The connection is still good: those requests were read to their end.
  EXPECT_EQ(send("gzip", Gzip("end")).body, "POST /|end");
}

TEST_F(HttpServerTest, OversizeBodyIsAnsweredEvenIfTheClientSendsItAll) {
  HttpServerOptions options;
  options.body_bytes_max = 10000;
  StartServer(Echo, options);
  TestSocket client(port_);
  client.Send("POST / HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n");
  EXPECT_TRUE(client.Send(std::string(8000000, 'x')));
  HttpResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(response.body,
            "{\"error\":{\"code\":413,\"message\":\"The request body is larger than 10000 bytes.\","
            "\"status\":\"INVALID_ARGUMENT\"}}\n");
  EXPECT_EQ(*FindHeader(response.headers, "connection"), "close");
  EXPECT_TRUE(client.ReadEnd());

  TestSocket chunked(port_);
  chunked.Send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2711\r\n" +
               std::string(0x2711, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.ReadResponse().status, 413);

  TestSocket exact(port_);
  exact.Send("POST / HTTP/1.1\r\nContent-Length: 10000\r\n\r\n" + std::string(10000, 'x'));
  EXPECT_EQ(exact.ReadResponse().body.size(), 10007u);
}

TEST_F(HttpServerTest, TenMebibytesPassWithDefaults) {
  StartServer(Echo);
  TestSocket client(port_);
  std::string body(14 << 20, 'b');
  client.Send(fmt::format("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.size()));
  client.Send(body);
  EXPECT_TRUE(client.ReadResponse().body == "POST /|" + body);
}

TEST_F(HttpServerTest, ExpectContinue) {
  HttpServerOptions options;
  options.body_bytes_max = 10000;
  StartServer(Echo, options);
  TestSocket client(port_);
  client.Send("POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 100);
  client.Send("abc");
  EXPECT_EQ(client.ReadResponse().body, "POST /|abc");
  // No 100 where the body is there already, and none for one that is too large.
  client.Send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(client.ReadResponse().status, 200);
  client.Send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10001\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(HttpServerTest, Head) {
  StartServer(Echo);
  TestSocket client(port_);
  client.Send("HEAD /h HTTP/1.1\r\n\r\nGET /g HTTP/1.1\r\n\r\n");
  HttpResponse head = client.ReadResponse(true);
  EXPECT_EQ(*FindHeader(head.headers, "content-length"), "8");
  EXPECT_EQ(client.ReadResponse().body, "GET /g|");
}

TEST_F(HttpServerTest, BadRequestsAreAnswered) {
  HttpServerOptions options;
  options.header_bytes_max = 2000;
  StartServer(Echo, options);
  auto status = [&](const std::string& wire) {
    TestSocket client(port_);
    client.Send(wire);
    HttpResponse response = client.ReadResponse();
    EXPECT_THAT(response.body, HasSubstr("{\"error\":{\"code\":"));
    EXPECT_TRUE(client.ReadEnd());
    return response.status;
  };
  EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nbad header\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx"),
            400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: " + std::string(3000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: " + std::string(3000, 'x')), 431);
  // A gRPC client on a plain HTTP port.
  EXPECT_EQ(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

TEST_F(HttpServerTest, ClientClosingDuringALongPollCancelsIt) {
  StartServer(inbox_.Handler());
  for (bool reset : {false, true}) {
    TestSocket client(port_);
    client.Send("POST /pull HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    auto [request, responder] = inbox_.Take();
    Signal cancelled;
    responder.OnCancelled([] { ADD_FAILURE() << "replaced task ran"; });
    responder.OnCancelled([&] { cancelled.Raise(); });
    EXPECT_EQ(cancelled.raised(), 0);
    if (reset) {
      client.Reset();
    } else {
      client.Close();
    }
    EXPECT_TRUE(cancelled.Wait());
    // One who asks late is told as well, and an answer goes nowhere.
    Signal late;
    responder.OnCancelled([&] { late.Raise(); });
    EXPECT_TRUE(late.Wait());
    responder.Send(Text("too late"));
    EXPECT_EQ(cancelled.raised(), 1);
  }
}

TEST_F(HttpServerTest, PipelinedRequestOfAClientThatLeftIsCancelledToo) {
  StartServer(inbox_.Handler());
  TestSocket client(port_);
  client.Send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
  auto [first, first_responder] = inbox_.Take();
  Signal cancelled;
  first_responder.OnCancelled([&] { cancelled.Raise(); });
  client.ShutdownSend();
  ASSERT_TRUE(cancelled.Wait());
  first_responder.Send(Text("one"));
  auto [second, second_responder] = inbox_.Take();
  Signal second_cancelled;
  second_responder.OnCancelled([&] { second_cancelled.Raise(); });
  EXPECT_TRUE(second_cancelled.Wait());
  second_responder.Send(Text("two"));
  // It closed only its sending side, so it can still read.
  EXPECT_EQ(client.ReadResponse().body, "one");
  EXPECT_EQ(client.ReadResponse().body, "two");
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(HttpServerTest, CancelTaskIsDroppedByAnAnswer) {
  StartServer(inbox_.Handler());
  TestSocket client(port_);
  client.Send("GET / HTTP/1.1\r\n\r\n");
  auto [request, responder] = inbox_.Take();
  auto alive = std::make_shared<int>(1);
  std::weak_ptr<int> watch = alive;
  responder.OnCancelled([alive = std::move(alive)] { ADD_FAILURE(); });
  responder.Send(Text("a"));
  EXPECT_TRUE(watch.expired());
  responder.Send(Text("second send does nothing"));
  responder.OnCancelled([] { ADD_FAILURE(); });
  EXPECT_EQ(client.ReadResponse().body, "a");
}

TEST_F(HttpServerTest, DroppedResponderAnswers500) {
  StartServer([](HttpRequest, HttpResponder) {});
  TestSocket client(port_);
  client.Send("GET / HTTP/1.1\r\n\r\n");
  HttpResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, HasSubstr("\"status\":\"INTERNAL\""));
}

TEST_F(HttpServerTest, AssigningOverAResponderAnswersTheOldRequest) {
  StartServer(inbox_.Handler());
  TestSocket one(port_);
  TestSocket two(port_);
  one.Send("GET /1 HTTP/1.1\r\n\r\n");
  auto [first, responder] = inbox_.Take();
  two.Send("GET /2 HTTP/1.1\r\n\r\n");
  responder = inbox_.Take().second;
  EXPECT_EQ(one.ReadResponse().status, 500);
  responder.Send(Text("two"));
  EXPECT_EQ(two.ReadResponse().body, "two");
}

TEST_F(HttpServerTest, SlowClientsAreTimedOut) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(100);
  options.header_timeout = milliseconds(100);
  options.stall_timeout = milliseconds(100);
  StartServer(inbox_.Handler(), options);
  TestSocket idle(port_);
  idle.Send("GET /long-poll HTTP/1.1\r\n\r\n");
  auto [request, responder] = inbox_.Take();
  TestSocket header(port_);
  header.Send("GET / HTTP/1.1\r\nX: ");
  EXPECT_EQ(header.ReadResponse().status, 408);
  EXPECT_TRUE(header.ReadEnd());
  TestSocket body(port_);
  body.Send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(body.ReadResponse().status, 408);
  // The long poll outlived all of these limits; only after its answer the connection is idle.
  responder.Send(Text("late"));
  EXPECT_EQ(idle.ReadResponse().body, "late");
  EXPECT_TRUE(idle.ReadEnd());
}

TEST_F(HttpServerTest, ClientThatDoesNotReadItsAnswerIsDropped) {
  HttpServerOptions options;
  options.stall_timeout = milliseconds(100);
  Signal answered;
  StartServer(
      [&](HttpRequest, HttpResponder responder) {
        responder.Send(Text(std::string(64 << 20, 'x')));
        answered.Raise();
      },
      options);
  TestSocket client(port_);
  client.Send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(answered.Wait());
  // The server gives up by itself, well within the grace.
  auto begin = std::chrono::steady_clock::now();
  server_->Stop(seconds(15));
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(50));
  EXPECT_LT(took, seconds(10));
}

TEST_F(HttpServerTest, StopFinishesWhatIsInFlight) {
  StartServer(inbox_.Handler());
  TestSocket idle(port_);
  idle.Send("GET /idle HTTP/1.1\r\n\r\n");
  inbox_.Take().second.Send(Text("i"));
  EXPECT_EQ(idle.ReadResponse().body, "i");
  TestSocket busy(port_);
  busy.Send("GET /busy HTTP/1.1\r\n\r\n");
  auto [request, responder] = inbox_.Take();
  std::thread stopper([&] { server_->Stop(seconds(20)); });
  EXPECT_TRUE(idle.ReadEnd());
  responder.Send(Text("finished"));
  HttpResponse response = busy.ReadResponse();
  EXPECT_EQ(response.body, "finished");
  EXPECT_EQ(*FindHeader(response.headers, "connection"), "close");
  busy.Close();
  stopper.join();
}

TEST_F(HttpServerTest, StopCutsLongPollsAtItsDeadline) {
  StartServer(inbox_.Handler());
  TestSocket client(port_);
  client.Send("GET / HTTP/1.1\r\n\r\n");
  auto [request, responder] = inbox_.Take();
  Signal cancelled;
  responder.OnCancelled([&] { cancelled.Raise(); });
  server_->Stop(milliseconds(20));
  EXPECT_EQ(cancelled.raised(), 1);
  EXPECT_TRUE(client.ReadEnd());
  server_.reset();
  // The responder outlives its server.
  responder.OnCancelled([] { ADD_FAILURE(); });
  responder.Send(Text("nobody there"));
}

TEST_F(HttpServerTest, RequestsHeldInTheHandlerDieWithTheServer) {
  auto held = std::make_shared<std::vector<HttpResponder>>();
  StartServer(
      [held](HttpRequest, HttpResponder responder) { held->push_back(std::move(responder)); });
  TestSocket client(port_);
  client.Send("GET / HTTP/1.1\r\n\r\n");
  TestSocket partial(port_);
  partial.Send("GET / HT");
  server_.reset();
  EXPECT_TRUE(client.ReadEnd());
  EXPECT_TRUE(partial.ReadEnd());
  held->clear();
}

TEST_F(HttpServerTest, AdoptServesAnAcceptedSocket) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  StartServer(Echo);
  server_->Adopt(pair[1]);
  std::string wire = "GET /adopted HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(write(pair[0], wire.data(), wire.size()), static_cast<ssize_t>(wire.size()));
  std::string answer;
  char chunk[1000];
  while (ssize_t got = read(pair[0], chunk, sizeof(chunk))) {
    ASSERT_GT(got, 0);
    answer.append(chunk, static_cast<size_t>(got));
  }
  EXPECT_THAT(answer, HasSubstr("GET /adopted|"));
  close(pair[0]);
}

// Many clients with random splits, pipelining and answers from other threads.
TEST_F(HttpServerTest, RandomLoad) {
  const char* given = std::getenv("MR_TEST_SEED");
  uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  SCOPED_TRACE(fmt::format("MR_TEST_SEED={}", seed));
  ThreadPool pool(2, "answers");
  HttpServerOptions options;
  options.threads = 3;
  StartServer(
      [&](HttpRequest request, HttpResponder responder) {
        if (request.body.size() % 2 == 0) return Echo(std::move(request), std::move(responder));
        pool.Post([request = std::move(request), responder = std::move(responder)]() mutable {
          Echo(std::move(request), std::move(responder));
        });
      },
      options);
  std::vector<std::thread> clients;
  std::atomic<int> good = 0;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937_64 random(seed + c);
      for (int round = 0; round < 40; ++round) {
        TestSocket client(port_);
        std::string wire;
        std::vector<std::string> expected;
        for (int i = 0; i < 10; ++i) {
          std::string body(random() % 5 == 0 ? random() % 100000 : random() % 100, 'a' + i);
          wire += fmt::format("POST /{} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", i, body.size(),
                              body);
          expected.push_back(fmt::format("POST /{}|{}", i, body));
        }
        std::thread sender([&, cut_seed = random()] {
          std::mt19937_64 cuts(cut_seed);
          for (size_t at = 0; at < wire.size();) {
            size_t size = std::min<size_t>(wire.size() - at, 1 + cuts() % 30000);
            client.Send(std::string_view(wire).substr(at, size));
            at += size;
          }
        });
        for (const auto& body : expected) {
          if (client.ReadResponse().body == body) ++good;
        }
        sender.join();
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(good.load(), 8 * 40 * 10);
  server_->Stop(seconds(1));
}

}  // namespace
}  // namespace millrace::net
