#include "net/port_mux.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/mutex.h"
#include "net/grpc_acceptor.h"
#include "net/http_server.h"
#include "net/socket.h"
#include "net/test_socket.h"

namespace millrace::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

const std::vector<std::string> kLoopbacks = {"127.0.0.1", "::1"};

// Answers any method with the caller's address.
class PeerService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(const std::string& peer) {
        grpc::Slice slice(peer);
        answer_ = grpc::ByteBuffer(&slice, 1);
        StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer answer_;
    };
    return new Reactor(context->peer());
  }
};

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string all;
  if (!buffer.Dump(&slices).ok()) return all;
  for (const auto& slice : slices) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return all;
}

// The answer's bytes, or the error.
std::string Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  grpc::ByteBuffer request;
  grpc::Slice none;
  request = grpc::ByteBuffer(&none, 1);
  grpc::ByteBuffer response;
  Mutex mutex;
  CondVar changed;
  bool done = false;
  grpc::Status status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status result) {
                   MutexLock lock(mutex);
                   status = std::move(result);
                   done = true;
                   changed.NotifyAll();
                 });
  MutexLock lock(mutex);
  while (!done) changed.Wait(mutex);
  return status.ok() ? Bytes(response) : "error: " + status.error_message();
}

std::shared_ptr<grpc::Channel> Connect(const std::string& host, int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(fmt::format("{}:{}", host, port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// gRPC and HTTP behind one mux.
class PortMuxTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    acceptor_.Attach(builder);
    builder.RegisterCallbackGenericService(&service_);
    grpc_server_ = builder.BuildAndStart();
    ASSERT_NE(grpc_server_, nullptr);
    http_server_ = std::make_unique<HttpServer>(HttpServerOptions{},
                                                [](HttpRequest request, HttpResponder responder) {
                                                  HttpResponse response;
                                                  response.body = request.peer;
                                                  responder.Send(std::move(response));
                                                });
  }
  void StartMux(std::vector<std::string> hosts, Duration first_bytes_timeout = seconds(20)) {
    PortMux::Routes routes;
    routes.grpc = [this](int fd) { acceptor_.Take(fd); };
    routes.http = [this](int fd) { http_server_->Adopt(fd); };
    routes.first_bytes_timeout = first_bytes_timeout;
    auto mux = PortMux::Start(std::move(hosts), 0, std::move(routes));
    ASSERT_TRUE(mux.ok()) << mux.status();
    mux_ = std::move(*mux);
  }
  void TearDown() override {
    mux_.reset();
    grpc_server_->Shutdown(std::chrono::system_clock::now() + seconds(1));
  }

  PeerService service_;
  GrpcAcceptor acceptor_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<HttpServer> http_server_;
  std::unique_ptr<PortMux> mux_;
};

TEST_F(PortMuxTest, GrpcAndHttpOnBothLoopbacks) {
  StartMux(kLoopbacks);
  auto channel = Connect("127.0.0.1", mux_->port());
  // HealthCheckResponse { status: SERVING }.
  EXPECT_EQ(Call(channel, "/grpc.health.v1.Health/Check"), std::string("\x08\x01"));
  EXPECT_THAT(Call(channel, "/any/Method"), StartsWith("ipv4:127.0.0.1:"));
  EXPECT_THAT(Call(Connect("[::1]", mux_->port()), "/any/Method"), StartsWith("ipv6:%5B::1%5D:"));
  for (const auto& host : kLoopbacks) {
    TestSocket client(mux_->port(), host);
    client.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_THAT(client.ReadResponse().body, StartsWith(host == "::1" ? "[::1]:" : "127.0.0.1:"));
  }
}

TEST_F(PortMuxTest, ManyClientsOfBothKinds) {
  StartMux(kLoopbacks);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        if (t % 2 == 0) {
          EXPECT_THAT(Call(Connect("127.0.0.1", mux_->port()), "/x/Y"), StartsWith("ipv4:"));
        } else {
          TestSocket client(mux_->port());
          client.Send("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
          EXPECT_EQ(client.ReadResponse().status, 200);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(PortMuxTest, FirstBytesOneAtATime) {
  StartMux(kLoopbacks);
  TestSocket http2(mux_->port());
  // Preface and an empty SETTINGS frame.
  std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  preface += std::string("\0\0\0\4\0\0\0\0\0", 9);
  for (char c : preface) {
    http2.Send({&c, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::string frame = http2.ReadBytes(9);
  ASSERT_EQ(frame.size(), 9u);
  EXPECT_EQ(frame[3], 4);  // the server's SETTINGS

  TestSocket http1(mux_->port());
  for (char c : std::string_view("PRIX / HTTP/1.1\r\n\r\n")) {
    http1.Send({&c, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(http1.ReadResponse().status, 200);
}

TEST_F(PortMuxTest, SilentAndForeignClientsAreClosed) {
  StartMux(kLoopbacks, milliseconds(50));
  TestSocket silent(mux_->port());
  TestSocket undecided(mux_->port());
  undecided.Send("PR");
  TestSocket tls(mux_->port());
  tls.Send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  EXPECT_TRUE(silent.ReadEnd());
  EXPECT_TRUE(undecided.ReadEnd());
  EXPECT_TRUE(tls.ReadEnd());
}

TEST_F(PortMuxTest, ClientsThatLeaveEarlyAreForgotten) {
  StartMux(kLoopbacks);
  for (int i = 0; i < 20; ++i) {
    TestSocket nothing(mux_->port());
    TestSocket little(mux_->port());
    little.Send("PRI");
    TestSocket half(mux_->port());
    half.Send("P");
    half.ShutdownSend();
    EXPECT_TRUE(half.ReadEnd());
    little.Reset();
  }
  TestSocket client(mux_->port());
  client.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(PortMuxTest, StopWithClientsConnected) {
  StartMux(kLoopbacks);
  TestSocket silent(mux_->port());
  TestSocket http(mux_->port());
  http.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(http.ReadResponse().status, 200);
  auto channel = Connect("127.0.0.1", mux_->port());
  EXPECT_THAT(Call(channel, "/x/Y"), StartsWith("ipv4:"));
  mux_->Stop();
  mux_->Stop();
  EXPECT_TRUE(silent.ReadEnd());
  // What is routed lives on.
  http.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(http.ReadResponse().status, 200);
  EXPECT_THAT(Call(channel, "/x/Y"), StartsWith("ipv4:"));
  http_server_->Stop(seconds(1));
  EXPECT_TRUE(http.ReadEnd());
}

TEST(PortMuxListen, BusyPortSaysWhatToDo) {
  auto first = PortMux::Start(kLoopbacks, 0, {});
  ASSERT_TRUE(first.ok()) << first.status();
  int port = (*first)->port();
  auto second = PortMux::Start(kLoopbacks, port, {});
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(second.status()),
            fmt::format("Port {} on 127.0.0.1 is in use by another process; stop that process or "
                        "choose another port (0 takes any free one).",
                        port));
  (*first)->Stop();
  auto third = PortMux::Start(kLoopbacks, port, {});
  EXPECT_TRUE(third.ok()) << third.status();
}

TEST(PortMuxListen, PortTakenOnOneLoopbackOnly) {
  auto only_ipv6 = ListenTcp({"::1"}, 0);
  ASSERT_TRUE(only_ipv6.ok()) << only_ipv6.status();
  auto both = ListenTcp(kLoopbacks, only_ipv6->port);
  EXPECT_THAT(std::string(MessageOf(both.status())), HasSubstr("on ::1 is in use"));
}

TEST(PortMuxListen, BadAddresses) {
  EXPECT_THAT(std::string(MessageOf(ListenTcp({"not an address"}, 0).status())),
              HasSubstr("give an IP address such as 127.0.0.1"));
  EXPECT_THAT(std::string(MessageOf(ListenTcp({"192.0.2.1"}, 0).status())),
              HasSubstr("This machine has no address 192.0.2.1"));
  EXPECT_FALSE(ListenTcp({}, 0).ok());
  EXPECT_FALSE(ListenTcp({"127.0.0.1"}, 65536).ok());
  EXPECT_TRUE(ListenTcp({"127.0.0.1", "127.0.0.1"}, 0).ok());
}

}  // namespace
}  // namespace millrace::net
