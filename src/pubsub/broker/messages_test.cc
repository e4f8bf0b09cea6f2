// Publishing and consuming through the whole broker, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/virtual_broker.h"

namespace millrace::pubsub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTopic[] = "projects/p/topics/t-1";
constexpr char kSubscription[] = "projects/p/subscriptions/s-1";

class MessagesTest : public ::testing::Test {
 protected:
  MessagesTest() {
    EXPECT_TRUE(broker_.CreateTopic(kTopic).ok());
    EXPECT_TRUE(broker_.CreateSubscription(kSubscription, kTopic).ok());
  }
  VirtualBroker broker_;
};

TEST_F(MessagesTest, PublishPullAcknowledge) {
  auto published = broker_.Publish(kTopic, {"a", "b"});
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ(published->count, 2u);
  EXPECT_EQ(std::to_string(published->first_message_id).size(), 16u);
  auto deliveries = broker_.Pull(kSubscription);
  ASSERT_TRUE(deliveries.ok()) << deliveries.status();
  ASSERT_EQ(deliveries->size(), 2u);
  pb::PubsubMessage second = VirtualBroker::Parse((*deliveries)[1]);
  EXPECT_EQ(second.data(), "b");
  EXPECT_EQ(second.message_id(), std::to_string(published->first_message_id + 1));
  EXPECT_EQ(second.publish_time().seconds(), broker_.clock().WallNow().micros / 1'000'000);
  EXPECT_TRUE(broker_.Acknowledge(kSubscription, *deliveries).ok());
  broker_.Advance(std::chrono::seconds(11));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre());
}

TEST_F(MessagesTest, APublishIsAnsweredAndSeenOnlyWhenDurable) {
  std::optional<Status> answer;
  broker_->Publish(VirtualBroker::Request(kTopic, {"a"}),
                   [&](StatusOr<PublishResult> r) { answer = r.status(); });
  broker_.RunWithoutCommits();
  EXPECT_FALSE(answer.has_value());
  broker_.Crash();
  EXPECT_FALSE(answer.has_value());
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre());
  ASSERT_TRUE(broker_.Publish(kTopic, {"b"}).ok());
  broker_.Crash();
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("b"));
}

TEST_F(MessagesTest, AcksSurviveACrashAndTheRestComesBack) {
  ASSERT_TRUE(broker_.Publish(kTopic, {"a", "b", "c"}).ok());
  auto deliveries = broker_.Pull(kSubscription, 2);
  ASSERT_TRUE(broker_.Acknowledge(kSubscription, {(*deliveries)[0]}).ok());
  broker_.Crash();
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("b", "c"));
  broker_.Checkpoint();
  broker_.Crash();
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("b", "c"));
}

TEST_F(MessagesTest, ASubscriptionBeginsWhereItWasMade) {
  ASSERT_TRUE(broker_.Publish(kTopic, {"before"}).ok());
  ASSERT_TRUE(broker_.CreateSubscription("projects/p/subscriptions/late", kTopic).ok());
  ASSERT_TRUE(broker_.Publish(kTopic, {"after"}).ok());
  EXPECT_THAT(broker_.PullTexts("projects/p/subscriptions/late"), ElementsAre("after"));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("before", "after"));
}

TEST_F(MessagesTest, WithoutSubscriptionsNothingIsStoredAndNoIdComesTwice) {
  constexpr char kLonely[] = "projects/p/topics/lonely";
  ASSERT_TRUE(broker_.CreateTopic(kLonely).ok());
  auto entry_bytes = broker_.log().Stats().entry_bytes;
  auto first = broker_.Publish(kLonely, {"x", "y"});
  auto second = broker_.Publish(kLonely, {"z"});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->first_message_id, first->first_message_id + 2);
  EXPECT_EQ(broker_.log().Stats().entry_bytes, entry_bytes);
  for (bool checkpoint : {false, true}) {
    if (checkpoint) broker_.Checkpoint();
    broker_.Crash();
    auto third = broker_.Publish(kLonely, {"w"});
    EXPECT_GT(third->first_message_id, second->first_message_id);
    second = third;
  }
  ASSERT_TRUE(broker_.CreateSubscription("projects/p/subscriptions/friend", kLonely).ok());
  auto stored = broker_.Publish(kLonely, {"heard"});
  EXPECT_GT(stored->first_message_id, second->first_message_id);
  EXPECT_THAT(broker_.PullTexts("projects/p/subscriptions/friend"), ElementsAre("heard"));
}

TEST_F(MessagesTest, PublishOnceStoresASequenceOnce) {
  auto once = [&](uint64_t sequence, const std::string& text) {
    pb::PubsubMessage message;
    message.set_data(text);
    return broker_.Do([&](auto reply) {
      broker_->PublishOnce(kTopic, "job-1/stage/0", sequence,
                           {SharedBytes(message.SerializeAsString())}, std::move(reply));
    });
  };
  EXPECT_TRUE(once(1, "one").ok());
  EXPECT_TRUE(once(1, "one again").ok());
  EXPECT_TRUE(once(2, "two").ok());
  broker_.Crash();
  EXPECT_TRUE(once(2, "two again").ok());
  broker_.Checkpoint();
  broker_.Crash();
  EXPECT_TRUE(once(2, "two again").ok());
  EXPECT_TRUE(once(5, "five").ok());
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("one", "two", "five"));
}

TEST_F(MessagesTest, PublishTimesNeverGoBack) {
  ASSERT_TRUE(broker_.Publish(kTopic, {"a"}).ok());
  WallTime before = broker_.clock().WallNow();
  broker_.clock().SetWall(before - std::chrono::hours(1));
  broker_.Crash();
  ASSERT_TRUE(broker_.Publish(kTopic, {"b"}).ok());
  auto deliveries = broker_.Pull(kSubscription);
  ASSERT_EQ(deliveries->size(), 2u);
  EXPECT_GE((*deliveries)[1].publish_time, (*deliveries)[0].publish_time);
}

TEST_F(MessagesTest, RetentionEndsByTime) {
  ASSERT_TRUE(broker_.Publish(kTopic, {"old"}).ok());
  broker_.Advance(std::chrono::hours(24 * 6));
  ASSERT_TRUE(broker_.Publish(kTopic, {"young"}).ok());
  broker_.Advance(std::chrono::hours(25));
  broker_.Advance(std::chrono::seconds(10));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("young"));
}

TEST_F(MessagesTest, BadCallsAreRefused) {
  EXPECT_EQ(broker_.Pull(kSubscription, 0).status(),
            InvalidArgument(
                "You have passed an invalid argument to the service (argument=max_messages)."));
  EXPECT_EQ(broker_.Pull("projects/p/subscriptions/none").status(),
            NotFound("Resource not found (resource=none)."));
  auto acknowledge = [&](std::vector<std::string> ids) {
    return broker_.Do(
        [&](auto reply) { broker_->Acknowledge(kSubscription, ids, std::move(reply)); });
  };
  EXPECT_EQ(acknowledge({}), InvalidArgument("You have not specified an ack ID in the request."));
  EXPECT_EQ(acknowledge({"nonsense"}),
            InvalidArgument("You have passed an invalid ack ID to the service (ack_id=nonsense)."));
  ASSERT_TRUE(broker_.Publish(kTopic, {"a"}).ok());
  auto deliveries = broker_.Pull(kSubscription);
  auto modify = [&](int32_t seconds) {
    return broker_.Do([&](auto reply) {
      broker_->ModifyAckDeadline(kSubscription, {(*deliveries)[0].ack_id}, seconds,
                                 std::move(reply));
    });
  };
  EXPECT_EQ(modify(601),
            InvalidArgument(
                "Invalid ack deadline given (ack_deadline=601). The ack deadline must be between "
                "0 and 600 seconds."));
  EXPECT_TRUE(modify(0).ok());
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("a"));
  // An id of an earlier incarnation names nothing, but is well-formed.
  ASSERT_TRUE(
      broker_.Do([&](auto reply) { broker_->DeleteSubscription(kSubscription, std::move(reply)); })
          .ok());
  ASSERT_TRUE(broker_.CreateSubscription(kSubscription, kTopic).ok());
  EXPECT_TRUE(broker_.Acknowledge(kSubscription, *deliveries).ok());
}

TEST_F(MessagesTest, ADroppedPullTakesNoMessage) {
  Broker::PullRequest request;
  request.subscription = kSubscription;
  request.max_messages = 10;
  bool answered = false;
  auto ticket = broker_->Pull(request, [&](StatusOr<std::vector<Delivery>>) { answered = true; });
  broker_.Run();
  ticket.reset();
  broker_.Run();
  ASSERT_TRUE(broker_.Publish(kTopic, {"a"}).ok());
  EXPECT_FALSE(answered);
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("a"));
}

class RecordingConsumer : public StreamConsumer {
 public:
  void OnDeliveries(std::vector<Delivery> deliveries) override {
    for (Delivery& delivery : deliveries) received.push_back(std::move(delivery));
  }
  void OnProperties(SubscriptionProperties) override {}
  void OnAckOutcome(bool, AckOutcome) override {}
  void OnEnd(Status status) override { end = std::move(status); }

  std::vector<Delivery> received;
  std::optional<Status> end;
};

TEST_F(MessagesTest, AStreamIsServedAndEndsWithItsSubscription) {
  auto consumer = std::make_shared<RecordingConsumer>();
  StreamOptions options;
  options.subscription = kSubscription;
  options.ack_deadline = std::chrono::seconds(10);
  auto stream = broker_.Get<std::unique_ptr<Stream>>(
      [&](auto reply) { broker_->OpenStream(options, consumer, std::move(reply)); });
  ASSERT_TRUE(stream.ok()) << stream.status();
  (*stream)->Demand(1 << 20);
  broker_.Run();
  ASSERT_TRUE(broker_.Publish(kTopic, {"a", "b"}).ok());
  ASSERT_EQ(consumer->received.size(), 2u);
  ASSERT_TRUE(
      broker_.Do([&](auto reply) { broker_->DeleteSubscription(kSubscription, std::move(reply)); })
          .ok());
  ASSERT_TRUE(consumer->end.has_value());
  EXPECT_EQ(consumer->end->code(), StatusCode::kNotFound);
  options.ack_deadline = std::chrono::seconds(9);
  options.subscription = kSubscription;
  ASSERT_TRUE(broker_.CreateSubscription(kSubscription, kTopic).ok());
  EXPECT_EQ(broker_
                .Get<std::unique_ptr<Stream>>(
                    [&](auto reply) { broker_->OpenStream(options, consumer, std::move(reply)); })
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MessagesTest, TheWatchSeesWhatWasAnswered) {
  auto watch = broker_.Get<std::unique_ptr<BacklogWatch>>([&](auto reply) {
    broker_->WatchBacklog(kSubscription, std::nullopt, std::chrono::seconds(10), std::move(reply));
  });
  ASSERT_TRUE(watch.ok()) << watch.status();
  WallTime published = broker_.clock().WallNow();
  ASSERT_TRUE(broker_.Publish(kTopic, {"a", "b"}).ok());
  broker_.clock().Advance(std::chrono::seconds(5));
  auto info = broker_.Get<BacklogInfo>([&](auto done) { (*watch)->Query(std::move(done)); });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->messages, 2u);
  ASSERT_TRUE(info->oldest_unacked_publish.has_value());
  EXPECT_EQ(info->oldest_unacked_publish->micros, published.micros / 1000 * 1000);
  EXPECT_EQ(info->now.micros, broker_.clock().WallNow().micros / 1000 * 1000);
}

TEST_F(MessagesTest, WhatNobodyNeedsLeavesTheLog) {
  ASSERT_TRUE(broker_.CreateSubscription("projects/p/subscriptions/s-2", kTopic).ok());
  constexpr size_t kBytes = 1 << 20;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(broker_.Publish(kTopic, {std::string(kBytes, 'x')}).ok());
  EXPECT_GT(broker_.log().Stats().entry_bytes, 6 * kBytes);
  // One subscription acks all of it, the other all but one; the longest need decides.
  for (std::string name : {"projects/p/subscriptions/s-1", "projects/p/subscriptions/s-2"}) {
    std::vector<Delivery> all;
    while (all.size() < 6) {
      auto some = broker_.Pull(name);
      ASSERT_TRUE(some.ok() && !some->empty());
      all.insert(all.end(), some->begin(), some->end());
    }
    if (name == kSubscription) all.erase(all.begin() + 3);
    ASSERT_TRUE(broker_.Acknowledge(name, all).ok());
  }
  broker_.Advance(std::chrono::seconds(10));
  EXPECT_GT(broker_.log().Stats().entry_bytes, kBytes);
  EXPECT_LT(broker_.log().Stats().entry_bytes, 2 * kBytes);
  EXPECT_EQ(broker_.PullTexts(kSubscription).size(), 1u);
}

TEST_F(MessagesTest, MetricsNameTopicsAndSubscriptions) {
  ASSERT_TRUE(broker_.Publish(kTopic, {"a", "b"}).ok());
  std::string text;
  broker_->Metrics([&](std::string answer) { text = std::move(answer); });
  broker_.Run();
  EXPECT_THAT(
      text, HasSubstr("millrace_pubsub_topic_messages_total{topic=\"projects/p/topics/t-1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("millrace_pubsub_subscription_backlog_messages{subscription="
                              "\"projects/p/subscriptions/s-1\"} 2\n"));
}

}  // namespace
}  // namespace millrace::pubsub
