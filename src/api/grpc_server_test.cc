// The gRPC door over real sockets with the generated C++ client; the broker is a fake.
#include "api/grpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "api/fake_broker.h"
#include "api/publisher_service.h"
#include "api/subscriber_service.h"
#include "google/iam/v1/iam_policy.grpc.pb.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "net/port_mux.h"

namespace millrace::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() {
    AddPublisherMethods(broker_, table_);
    AddSubscriberMethods(broker_, table_);
    server_ = std::make_unique<GrpcServer>(broker_, table_);
    server_->SetServing(true);
    auto mux = net::PortMux::Start(
        {"127.0.0.1"}, 0,
        {.grpc = [this](int fd) { server_->Take(fd); }, .http = [](int fd) { ::close(fd); }});
    EXPECT_TRUE(mux.ok()) << mux.status();
    mux_ = *std::move(mux);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(mux_->port()),
                                         grpc::InsecureChannelCredentials(), arguments);
    publisher_ = pb::Publisher::NewStub(channel_);
    subscriber_ = pb::Subscriber::NewStub(channel_);
  }
  ~GrpcServerTest() override {
    mux_->Stop();
    server_->Stop(std::chrono::seconds(1));
  }

  FakeBroker broker_;
  MethodTable table_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<net::PortMux> mux_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Publisher::Stub> publisher_;
  std::unique_ptr<pb::Subscriber::Stub> subscriber_;
};

pubsub::Delivery MakeDelivery(const std::string& ack_id, const std::string& data) {
  pb::PubsubMessage message;
  message.set_data(data);
  message.set_message_id("7");
  pubsub::Delivery delivery;
  delivery.ack_id = ack_id;
  delivery.message = SharedBytes(message.SerializeAsString());
  return delivery;
}

TEST_F(GrpcServerTest, AdministrationPassesRequestsAnswersAndErrors) {
  pb::Topic topic, answer;
  topic.set_name("projects/p/topics/t");
  grpc::ClientContext create, again, get;
  EXPECT_TRUE(publisher_->CreateTopic(&create, topic, &answer).ok());
  EXPECT_EQ(answer.name(), topic.name());
  EXPECT_EQ(publisher_->CreateTopic(&again, topic, &answer).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  pb::GetTopicRequest request;
  request.set_topic("projects/p/topics/none");
  grpc::Status status = publisher_->GetTopic(&get, request, &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("Resource not found"));
}

TEST_F(GrpcServerTest, PublishAnswersConsecutiveIdsAlsoForCompressedRequests) {
  for (auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    pb::PublishRequest request;
    request.set_topic("projects/p/topics/t");
    for (int i = 0; i < 300; ++i) request.add_messages()->set_data(std::string(1000, 'x'));
    pb::PublishResponse response;
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    grpc::Status status = publisher_->Publish(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(broker_.last_publish.SerializeAsString(), request.SerializeAsString());
    ASSERT_EQ(response.message_ids_size(), 300);
    EXPECT_EQ(response.message_ids(0), "1000000000000000");
    EXPECT_EQ(response.message_ids(299), "1000000000000299");
  }
}

TEST_F(GrpcServerTest, RequestsOverTheTransportCapAreRefusedByASentence) {
  pb::PublishRequest request;
  request.add_messages()->set_data(std::string(10'485'760, 'x'));
  pb::PublishResponse response;
  grpc::ClientContext context;
  grpc::Status status = publisher_->Publish(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "Request payload size exceeds the limit: 10485760 bytes.");
}

TEST_F(GrpcServerTest, ErrorInfoTravelsAsStatusDetails) {
  ErrorInfo info;
  info.reason = "EXACTLY_ONCE_ACKID_FAILURE";
  info.domain = "pubsub.googleapis.com";
  info.metadata["id"] = "PERMANENT_FAILURE_INVALID_ACK_ID";
  broker_.ack_status = WithErrorInfo(InvalidArgument("Some ids were invalid."), info);
  pb::AcknowledgeRequest request;
  request.set_subscription("projects/p/subscriptions/s");
  request.add_ack_ids("id");
  google::protobuf::Empty empty;
  grpc::ClientContext context;
  grpc::Status status = subscriber_->Acknowledge(&context, request, &empty);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.message(), "Some ids were invalid.");
  google::rpc::ErrorInfo error;
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&error));
  EXPECT_EQ(error.reason(), info.reason);
  EXPECT_EQ(error.metadata().at("id"), "PERMANENT_FAILURE_INVALID_ACK_ID");
  EXPECT_THAT(broker_.acked, ElementsAre("id"));
}

TEST_F(GrpcServerTest, PullWaitsOneSecondLessThanItsCallerAndDeliversStoredBytes) {
  pb::PullResponse response;
  auto call = std::async(std::launch::async, [&] {
    pb::PullRequest request;
    request.set_subscription("projects/p/subscriptions/s");
    request.set_max_messages(5);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return subscriber_->Pull(&context, request, &response);
  });
  FakeBroker::WaitingPull pull = broker_.TakePull();
  EXPECT_EQ(pull.request.max_messages, 5);
  EXPECT_GT(pull.request.wait, std::chrono::seconds(7));
  EXPECT_LT(pull.request.wait, std::chrono::milliseconds(9500));  // gRPC rounds deadlines up
  std::vector<pubsub::Delivery> deliveries = {MakeDelivery("a", "small"),
                                              MakeDelivery("b", std::string(100'000, 'y'))};
  deliveries[1].delivery_attempt = 300;
  pull.reply(std::move(deliveries));
  ASSERT_TRUE(call.get().ok());
  ASSERT_EQ(response.received_messages_size(), 2);
  EXPECT_EQ(response.received_messages(0).ack_id(), "a");
  EXPECT_EQ(response.received_messages(0).message().data(), "small");
  EXPECT_EQ(response.received_messages(0).delivery_attempt(), 0);
  EXPECT_EQ(response.received_messages(1).message().data().size(), 100'000u);
  EXPECT_EQ(response.received_messages(1).delivery_attempt(), 300);
}

TEST_F(GrpcServerTest, CancelledPullTakesNothing) {
  grpc::ClientContext context;
  auto call = std::async(std::launch::async, [&] {
    pb::PullRequest request;
    request.set_subscription("projects/p/subscriptions/s");
    request.set_max_messages(5);
    pb::PullResponse response;
    return subscriber_->Pull(&context, request, &response);
  });
  FakeBroker::WaitingPull pull = broker_.TakePull();
  EXPECT_EQ(pull.request.wait, std::chrono::seconds(25));
  context.TryCancel();
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
  while (!pull.handle.expired()) std::this_thread::yield();
  // A delivery that was already on its way goes back.
  pull.reply(std::vector<pubsub::Delivery>{MakeDelivery("late", "x")});
  MutexLock lock(broker_.mutex);
  EXPECT_THAT(broker_.modified, ElementsAre("late"));
  EXPECT_EQ(broker_.modified_seconds, 0);
}

TEST_F(GrpcServerTest, WhatThisVersionLacksIsUnimplementedByASentence) {
  pb::CreateSnapshotRequest request;
  pb::Snapshot snapshot;
  grpc::ClientContext c1, c2, c3, c4, c5;
  grpc::Status status = subscriber_->CreateSnapshot(&c1, request, &snapshot);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "CreateSnapshot is not supported by this version of Millrace.");
  pb::ListSchemasRequest list;
  pb::ListSchemasResponse schemas;
  EXPECT_EQ(pb::SchemaService::NewStub(channel_)->ListSchemas(&c2, list, &schemas).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  google::iam::v1::GetIamPolicyRequest get;
  google::iam::v1::Policy policy;
  EXPECT_EQ(
      google::iam::v1::IAMPolicy::NewStub(channel_)->GetIamPolicy(&c3, get, &policy).error_code(),
      grpc::StatusCode::UNIMPLEMENTED);
  pb::ModifyPushConfigRequest modify;
  modify.set_subscription("projects/p/subscriptions/s");
  modify.mutable_push_config();
  google::protobuf::Empty empty;
  EXPECT_TRUE(subscriber_->ModifyPushConfig(&c4, modify, &empty).ok());
  modify.mutable_push_config()->set_push_endpoint("http://localhost/");
  EXPECT_EQ(subscriber_->ModifyPushConfig(&c5, modify, &empty).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

class StreamingPullTest : public GrpcServerTest {
 protected:
  using ClientStream =
      grpc::ClientReaderWriter<pb::StreamingPullRequest, pb::StreamingPullResponse>;

  pb::StreamingPullRequest First() {
    pb::StreamingPullRequest request;
    request.set_subscription("projects/p/subscriptions/s");
    request.set_stream_ack_deadline_seconds(60);
    request.set_client_id("me");
    request.set_max_outstanding_messages(100);
    request.set_max_outstanding_bytes(1000);
    request.set_protocol_version(1);
    return request;
  }
  void Open() {
    client_ = subscriber_->StreamingPull(&context_);
    ASSERT_TRUE(client_->Write(First()));
    state_ = broker_.TakeStream();
    state_->Await([&] { return state_->demands == 1; });
  }
  grpc::Status StatusAfter(const pb::StreamingPullRequest& first) {
    grpc::ClientContext context;
    auto stream = subscriber_->StreamingPull(&context);
    stream->Write(first);
    pb::StreamingPullResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  }

  grpc::ClientContext context_;
  std::unique_ptr<ClientStream> client_;
  std::shared_ptr<FakeStreamState> state_;
  pb::StreamingPullResponse response_;
};

TEST_F(StreamingPullTest, OpensWithTheClientsSettingsAndDelivers) {
  Open();
  EXPECT_EQ(state_->options.subscription, "projects/p/subscriptions/s");
  EXPECT_EQ(state_->options.ack_deadline, std::chrono::seconds(60));
  EXPECT_EQ(state_->options.client_id, "me");
  EXPECT_EQ(state_->options.max_outstanding_messages, 100);
  EXPECT_EQ(state_->options.max_outstanding_bytes, 1000);
  for (int round = 0; round < 50; ++round) {
    state_->consumer->OnDeliveries({MakeDelivery("a" + std::to_string(round), "one"),
                                    MakeDelivery("b", std::string(5000, 'z'))});
    ASSERT_TRUE(client_->Read(&response_));
    ASSERT_EQ(response_.received_messages_size(), 2);
    EXPECT_EQ(response_.received_messages(0).ack_id(), "a" + std::to_string(round));
    EXPECT_EQ(response_.received_messages(1).message().data().size(), 5000u);
    EXPECT_TRUE(response_.has_subscription_properties());
    state_->Await([&] { return state_->demands == round + 2; });
  }
}

TEST_F(StreamingPullTest, EveryPingIsAnsweredWithProperties) {
  Open();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client_->Write(pb::StreamingPullRequest()));
    ASSERT_TRUE(client_->Read(&response_));
    EXPECT_EQ(response_.received_messages_size(), 0);
    EXPECT_TRUE(response_.has_subscription_properties());
  }
  state_->consumer->OnProperties({.exactly_once_delivery = true, .message_ordering = true});
  ASSERT_TRUE(client_->Read(&response_));
  EXPECT_TRUE(response_.subscription_properties().exactly_once_delivery_enabled());
  EXPECT_TRUE(response_.subscription_properties().message_ordering_enabled());
  pubsub::AckOutcome outcome;
  outcome.done = {"d"};
  outcome.invalid = {"i"};
  outcome.unordered = {"u"};
  outcome.failed_for_now = {"f"};
  state_->consumer->OnAckOutcome(true, outcome);
  ASSERT_TRUE(client_->Read(&response_));
  EXPECT_THAT(response_.acknowledge_confirmation().unordered_ack_ids(), ElementsAre("u"));
  EXPECT_THAT(response_.acknowledge_confirmation().temporary_failed_ack_ids(), ElementsAre("f"));
  EXPECT_TRUE(response_.subscription_properties().exactly_once_delivery_enabled());
  outcome.unordered.clear();
  state_->consumer->OnAckOutcome(false, outcome);
  ASSERT_TRUE(client_->Read(&response_));
  EXPECT_THAT(response_.modify_ack_deadline_confirmation().invalid_ack_ids(), ElementsAre("i"));
  EXPECT_THAT(response_.modify_ack_deadline_confirmation().temporary_failed_ack_ids(),
              ElementsAre("f"));
}

TEST_F(StreamingPullTest, AcksAndDeadlinesReachTheBroker) {
  Open();
  pb::StreamingPullRequest request;
  request.add_ack_ids("a");
  request.add_modify_deadline_ack_ids("n");
  request.add_modify_deadline_seconds(0);
  request.add_modify_deadline_ack_ids("m");
  request.add_modify_deadline_seconds(30);
  request.set_stream_ack_deadline_seconds(20);
  ASSERT_TRUE(client_->Write(request));
  state_->Await([&] { return state_->calls.size() == 5; });
  MutexLock lock(state_->mutex);
  EXPECT_THAT(state_->calls,
              ElementsAre("deadline 60", "deadline 20", "ack a", "modify n 0", "modify m 30"));
}

TEST_F(StreamingPullTest, BadRequestsEndTheStream) {
  pb::StreamingPullRequest bad = First();
  bad.set_stream_ack_deadline_seconds(601);
  EXPECT_EQ(StatusAfter(bad).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  bad = First();
  bad.clear_subscription();
  EXPECT_EQ(StatusAfter(bad).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  bad = First();
  bad.set_subscription("projects/p/subscriptions/missing");
  EXPECT_EQ(StatusAfter(bad).error_code(), grpc::StatusCode::NOT_FOUND);
  Open();
  client_->Write(First());
  while (client_->Read(&response_)) {
  }
  grpc::Status status = client_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("subscription"));
  state_->Await([&] { return state_->closed; });
}

TEST_F(StreamingPullTest, HalfCloseGivesLeasesBackAndStaysOpen) {
  Open();
  client_->WritesDone();
  state_->Await([&] { return state_->closed; });
  state_->consumer->OnDeliveries({MakeDelivery("a", "late")});
  state_->consumer->OnProperties({.exactly_once_delivery = true});
  ASSERT_TRUE(client_->Read(&response_));
  EXPECT_EQ(response_.received_messages_size(), 0);
  context_.TryCancel();
  EXPECT_FALSE(client_->Read(&response_));
  EXPECT_EQ(client_->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StreamingPullTest, CancelClosesTheBrokersStream) {
  Open();
  context_.TryCancel();
  state_->Await([&] { return state_->closed; });
  EXPECT_FALSE(client_->Read(&response_));
  EXPECT_EQ(client_->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StreamingPullTest, TheBrokersEndReachesTheClient) {
  Open();
  state_->consumer->OnDeliveries({MakeDelivery("a", "one")});
  ASSERT_TRUE(client_->Read(&response_));
  state_->consumer->OnEnd(NotFound("deleted"));
  EXPECT_FALSE(client_->Read(&response_));
  grpc::Status status = client_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "deleted");
}

TEST_F(StreamingPullTest, ShutdownEndsStreamsWithUnavailable) {
  Open();
  server_->Stop(std::chrono::seconds(2));
  EXPECT_FALSE(client_->Read(&response_));
  grpc::Status status = client_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), testing::Not(HasSubstr("shutdownNow")));
}

TEST_F(StreamingPullTest, ASlowClientIsNotOverrun) {
  Open();
  // The client does not read: one response is on its way (transport buffers take it), then one
  // ready.
  for (int i = 0; i < 20; ++i) {
    int before;
    {
      MutexLock lock(state_->mutex);
      before = state_->demands;
    }
    if (before < i + 1) break;
    state_->consumer->OnDeliveries({MakeDelivery("a", std::string(1 << 20, 'x'))});
  }
  {
    MutexLock lock(state_->mutex);
    EXPECT_LT(state_->demands, 20);
  }
  int received = 0;
  while (received < 2 && client_->Read(&response_)) received += response_.received_messages_size();
  EXPECT_EQ(received, 2);
}

}  // namespace
}  // namespace millrace::api
