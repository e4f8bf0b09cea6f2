// The REST door over real sockets; the broker is a fake.
#include "api/rest_router.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "api/fake_broker.h"
#include "api/publisher_service.h"
#include "api/subscriber_service.h"

namespace millrace::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RestRouterTest : public testing::Test {
 protected:
  RestRouterTest() : router_(table_) {
    AddPublisherMethods(broker_, table_);
    AddSubscriberMethods(broker_, table_);
    server_ = std::make_unique<net::HttpServer>(
        net::HttpServerOptions(), [this](net::HttpRequest request, net::HttpResponder responder) {
          router_.Handle(std::move(request), std::move(responder));
        });
    StatusOr<int> port = server_->Listen("127.0.0.1", 0);
    EXPECT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }
  ~RestRouterTest() override { server_->Stop(std::chrono::seconds(1)); }

  int Connect() {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Send(int fd, const std::string& method, const std::string& target,
                   const std::string& body, const std::string& headers = "") {
    std::string text = method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                       headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                       body;
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  static std::string Receive(int fd) {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) out.append(buffer, n);
    close(fd);
    return out;
  }
  std::string Call(const std::string& method, const std::string& target,
                   const std::string& body = "") {
    int fd = Connect();
    Send(fd, method, target, body);
    return Receive(fd);
  }

  FakeBroker broker_;
  MethodTable table_;
  RestRouter router_;
  std::unique_ptr<net::HttpServer> server_;
  int port_ = 0;
};

TEST_F(RestRouterTest, AdministrationInGooglesForm) {
  std::string answer = Call("PUT", "/v1/projects/p/topics/t?alt=json", "{}");
  EXPECT_THAT(answer, HasSubstr("200"));
  EXPECT_THAT(answer, HasSubstr("application/json; charset=UTF-8"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n{\n  \"name\": \"projects/p/topics/t\"\n}\n"));
  EXPECT_THAT(Call("DELETE", "/v1/projects/p/topics/t"), HasSubstr("\r\n\r\n{}\n"));
  EXPECT_THAT(Call("PUT", "/v1/projects/p/subscriptions/s?prettyPrint=false", "{\"topic\":\"t\"}"),
              HasSubstr("{\"name\":\"projects/p/subscriptions/s\",\"topic\":\"t\","
                        "\"pushConfig\":{}}\n"));
}

TEST_F(RestRouterTest, ErrorsComeInTheEnvelopeAndUnknownPathsAsAPage) {
  std::string answer = Call("GET", "/v1/projects/p/topics/none");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 404"));
  EXPECT_THAT(answer, HasSubstr("\"status\": \"NOT_FOUND\""));
  answer = Call("GET", "/v2/some<where>");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 404"));
  EXPECT_THAT(answer, HasSubstr("text/html"));
  EXPECT_THAT(answer, HasSubstr("some&lt;where&gt;"));
  answer = Call("GET", "/v1/projects/p/snapshots");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 501"));
  EXPECT_THAT(answer, HasSubstr("ListSnapshots is not supported by this version of Millrace."));
  EXPECT_THAT(Call("GET", "/v1/projects/p/topics/t:getIamPolicy"), HasSubstr("HTTP/1.1 501"));
  EXPECT_THAT(Call("POST", "/v1/projects/p/schemas/s:setIamPolicy", "{}"),
              HasSubstr("HTTP/1.1 501"));
  EXPECT_THAT(Call("GET", "/"), HasSubstr("Ok"));
}

TEST_F(RestRouterTest, PublishGoesThroughTheSameDoorAsGrpc) {
  std::string answer = Call("POST", "/v1/projects/p/topics/t:publish?prettyPrint=false",
                            R"({"messages":[{"data":"aGk=","attributes":{"a":"b"}},
                                            {"data":"-_8","orderingKey":"k"}]})");
  EXPECT_THAT(answer, HasSubstr(R"({"messageIds":["1000000000000000","1000000000000001"]})"));
  EXPECT_EQ(broker_.last_publish.topic(), "projects/p/topics/t");
  EXPECT_EQ(broker_.last_publish.messages(0).data(), "hi");
  EXPECT_EQ(broker_.last_publish.messages(1).data(), "\xfb\xff");
}

TEST_F(RestRouterTest, LongPollAnswersLaterAndHonoursTheServerTimeout) {
  int fd = Connect();
  Send(fd, "POST", "/v1/projects/p/subscriptions/s:pull", R"({"maxMessages":3})",
       "X-Server-Timeout: 20\r\n");
  FakeBroker::WaitingPull pull = broker_.TakePull();
  EXPECT_EQ(pull.request.max_messages, 3);
  EXPECT_EQ(pull.request.wait, std::chrono::seconds(19));
  pubsub::Delivery delivery;
  delivery.ack_id = "a";
  pb::PubsubMessage message;
  message.set_data("hi");
  delivery.message = SharedBytes(message.SerializeAsString());
  pull.reply(std::vector<pubsub::Delivery>{delivery});
  std::string answer = Receive(fd);
  EXPECT_THAT(answer, HasSubstr("\"ackId\": \"a\""));
  EXPECT_THAT(answer, HasSubstr("\"data\": \"aGk=\""));
}

TEST_F(RestRouterTest, AClientThatGoesAwayTakesNoMessage) {
  int fd = Connect();
  Send(fd, "POST", "/v1/projects/p/subscriptions/s:pull", R"({"maxMessages":3})");
  FakeBroker::WaitingPull pull = broker_.TakePull();
  close(fd);
  while (!pull.handle.expired()) std::this_thread::yield();
  pubsub::Delivery delivery;
  delivery.ack_id = "late";
  pull.reply(std::vector<pubsub::Delivery>{delivery});
  MutexLock lock(broker_.mutex);
  EXPECT_THAT(broker_.modified, ElementsAre("late"));
  EXPECT_EQ(broker_.modified_seconds, 0);
}

TEST_F(RestRouterTest, UpdatesCarryTheirMask) {
  Call("PATCH", "/v1/projects/p/subscriptions/s?updateMask=ackDeadlineSeconds%2CbigqueryConfig",
       R"({"subscription":{"ackDeadlineSeconds":30}})");
  EXPECT_THAT(broker_.last_subscription_update.update_mask().paths(),
              ElementsAre("ack_deadline_seconds", "bigquery_config"));
  EXPECT_EQ(broker_.last_subscription_update.subscription().name(), "projects/p/subscriptions/s");
  Call("GET", "/v1/projects/p/topics?pageSize=5");
  EXPECT_EQ(broker_.last_list.page_size(), 5);
}

}  // namespace
}  // namespace millrace::api
