#include "connectors/pubsub/pubsub_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/virtual_broker.h"
#include "windowing/wire.h"

namespace millrace::connectors::pubsub {
namespace {

namespace broker = millrace::pubsub;
using broker::pb::Subscription;
using engine::SourceBatch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using windowing::Millis;

constexpr char kTopic[] = "projects/p/topics/t-1";
constexpr char kSubscription[] = "projects/p/subscriptions/s-1";

// What a pipeline would see of an element of bytes:v1.
std::string Value(const engine::SourceElement& element) {
  std::string_view in = element.value.view(), value;
  EXPECT_TRUE(windowing::ParseBytes(in, &value));
  EXPECT_TRUE(in.empty());
  return std::string(value);
}

std::vector<std::string> Values(const SourceBatch& batch) {
  std::vector<std::string> values;
  for (const engine::SourceElement& element : batch.elements) values.push_back(Value(element));
  return values;
}

std::vector<uint64_t> Handles(const SourceBatch& batch) {
  std::vector<uint64_t> handles;
  for (const engine::SourceElement& element : batch.elements) handles.push_back(element.handle);
  return handles;
}

// A source on a broker in memory; time is the test's.
class PubSubSourceTest : public ::testing::Test {
 protected:
  PubSubSourceTest() {
    EXPECT_TRUE(broker_.CreateTopic(kTopic).ok());
    EXPECT_TRUE(broker_.CreateSubscription(kSubscription, kTopic).ok());
    settings_.subscription = kSubscription;
  }
  ~PubSubSourceTest() override {
    source_.reset();
    broker_.Run();
  }

  void Begin() {
    source_ =
        MakePubSubSource(settings_, "projects/p/subscriptions/own",
                         {&*broker_, &broker_.clock(), &broker_.timers(), &broker_.executor()},
                         [this](Status warning) { warnings_.emplace_back(MessageOf(warning)); });
    broker_.Run();
  }
  // Asks once; an answer may come later.
  void Ask(size_t elements = 1000) {
    source_->Pull(elements, 1 << 20, [this](SourceBatch batch) { batch_ = std::move(batch); });
    broker_.Run();
  }
  SourceBatch Pull(size_t elements = 1000) {
    Ask(elements);
    EXPECT_TRUE(batch_) << "nothing was pulled";
    SourceBatch batch = batch_ ? std::move(*batch_) : SourceBatch{};
    batch_.reset();
    return batch;
  }
  Status Ack(std::vector<uint64_t> handles) {
    return broker_.Do([&](auto done) { source_->Ack(handles, std::move(done)); });
  }
  Millis Watermark() {
    StatusOr<Millis> watermark =
        broker_.Get<Millis>([&](auto done) { source_->Watermark(std::move(done)); });
    EXPECT_TRUE(watermark.ok()) << watermark.status();
    return watermark.value_or(-1);
  }
  Millis Now() { return broker_.clock().WallNow().micros / 1000; }
  void Publish(const std::string& data, std::map<std::string, std::string> attributes = {}) {
    broker::pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data(data);
    request.mutable_messages(0)->mutable_attributes()->insert(attributes.begin(), attributes.end());
    ASSERT_TRUE(broker_
                    .Get<broker::PublishResult>([&](auto reply) {
                      broker_->Publish(SharedBytes(request.SerializeAsString()), std::move(reply));
                    })
                    .ok());
  }

  broker::VirtualBroker broker_;
  ReadSettings settings_;
  std::vector<std::string> warnings_;
  std::unique_ptr<engine::Source> source_;
  std::optional<SourceBatch> batch_;
};

TEST_F(PubSubSourceTest, PullsWhatIsThere) {
  Publish("a");
  Publish("b");
  Begin();
  SourceBatch batch = Pull();
  EXPECT_THAT(Values(batch), ElementsAre("a", "b"));
  EXPECT_EQ(batch.elements[0].timestamp, Now());
  EXPECT_NE(batch.elements[0].dedup_id, batch.elements[1].dedup_id) << "by message id";
  EXPECT_NE(batch.elements[0].handle, batch.elements[1].handle);
  EXPECT_FALSE(batch.finished);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PubSubSourceTest, APullWaitsForTheNextMessage) {
  Begin();
  Ask();
  EXPECT_FALSE(batch_);
  Publish("later");
  ASSERT_TRUE(batch_);
  EXPECT_THAT(Values(*batch_), ElementsAre("later"));
}

TEST_F(PubSubSourceTest, KeepsToTheNumberAsked) {
  for (int i = 0; i < 5; ++i) Publish(std::to_string(i));
  Begin();
  EXPECT_THAT(Values(Pull(2)), ElementsAre("0", "1"));
  EXPECT_THAT(Values(Pull(9)), ElementsAre("2", "3", "4"));
}

TEST_F(PubSubSourceTest, AttributesGiveIdAndTime) {
  settings_.id_attribute = "id";
  settings_.timestamp_attribute = "ts";
  settings_.with_attributes = true;
  Publish("a", {{"id", "first"}, {"ts", "12345"}});
  Publish("b", {{"id", "second"}, {"ts", "1970-01-01T00:00:01Z"}});
  Publish("c", {{"ts", "nonsense"}});
  Begin();
  SourceBatch batch = Pull();
  ASSERT_THAT(batch.elements, SizeIs(3));
  EXPECT_EQ(batch.elements[0].dedup_id, "first");
  EXPECT_EQ(batch.elements[0].timestamp, 12345);
  EXPECT_EQ(batch.elements[1].timestamp, 1000);
  EXPECT_EQ(batch.elements[2].timestamp, Now()) << "the publish time, where it cannot be read";
  EXPECT_NE(batch.elements[2].dedup_id, "") << "the message id, where there is none";
  broker::pb::PubsubMessage message;
  ASSERT_TRUE(message.ParseFromString(Value(batch.elements[0])));
  EXPECT_EQ(message.data(), "a");
  EXPECT_EQ(message.attributes().at("id"), "first");
}

TEST_F(PubSubSourceTest, LeasesLastUntilTheAckHoweverLong) {
  Publish("slow");
  Begin();
  SourceBatch batch = Pull();
  Ask();
  for (int minute = 0; minute < 20; ++minute) {
    for (int i = 0; i < 6; ++i) broker_.Advance(std::chrono::seconds(10));
    EXPECT_FALSE(batch_) << "came again after " << minute << " minutes";
  }
  EXPECT_TRUE(Ack(Handles(batch)).ok());
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_FALSE(batch_);
  source_.reset();
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_THAT(broker_.PullTexts(kSubscription), IsEmpty()) << "acked for good";
}

TEST_F(PubSubSourceTest, AcksOnlyWhatItIsTold) {
  Publish("a");
  Publish("b");
  Begin();
  SourceBatch batch = Pull();
  EXPECT_TRUE(Ack({batch.elements[0].handle}).ok());
  EXPECT_TRUE(Ack({batch.elements[0].handle, 999}).ok()) << "known or unknown, it is no more";
  source_.reset();
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("b"));
}

TEST_F(PubSubSourceTest, ReleasedElementsComeAgainAtOnce) {
  Publish("a");
  Begin();
  SourceBatch batch = Pull();
  Ask();
  source_->Release(Handles(batch));
  broker_.Run();
  ASSERT_TRUE(batch_);
  EXPECT_THAT(Values(*batch_), ElementsAre("a"));
  EXPECT_NE(batch_->elements[0].handle, batch.elements[0].handle);
}

TEST_F(PubSubSourceTest, StopGivesBackWhatWasNotAcked) {
  Publish("a");
  Begin();
  Pull();
  Ask();
  source_->Stop();
  broker_.Run();
  ASSERT_TRUE(batch_);
  EXPECT_EQ(batch_->status.code(), StatusCode::kCancelled);
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("a"));
}

TEST_F(PubSubSourceTest, DrainEndsAfterWhatWasTaken) {
  Publish("a");
  Begin();
  SourceBatch batch = Pull();
  Ask();
  source_->Drain();
  broker_.Run();
  ASSERT_TRUE(batch_);
  EXPECT_TRUE(batch_->finished);
  EXPECT_THAT(batch_->elements, IsEmpty());
  Publish("after");
  EXPECT_TRUE(Ack(Handles(batch)).ok()) << "what was taken is acked all the same";
  source_.reset();
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("after"));
}

TEST_F(PubSubSourceTest, WatermarkWithoutAttributeIsTheOldestUnacked) {
  Begin();
  EXPECT_EQ(Watermark(), Now());
  broker_.Advance(std::chrono::seconds(100));
  EXPECT_EQ(Watermark(), Now()) << "a quiet subscription's watermark goes on";
  Publish("a");
  const Millis published = Now();
  SourceBatch batch = Pull();
  broker_.Advance(std::chrono::seconds(30));
  EXPECT_EQ(Watermark(), published) << "pulled is not acked";
  EXPECT_TRUE(Ack(Handles(batch)).ok());
  EXPECT_EQ(Watermark(), Now());
}

TEST_F(PubSubSourceTest, WatermarkWithAttributeIsTheExactMinimum) {
  settings_.timestamp_attribute = "ts";
  settings_.band = std::chrono::seconds(10);
  Publish("a", {{"ts", "5000"}});
  Publish("b", {{"ts", "3000"}});
  Publish("c", {{"ts", "9000"}});
  Begin();
  broker_.Advance(std::chrono::seconds(60));  // the backlog was scanned; the band is past
  EXPECT_EQ(Watermark(), 3000);
  SourceBatch batch = Pull();
  ASSERT_THAT(batch.elements, SizeIs(3));
  EXPECT_TRUE(Ack({batch.elements[1].handle}).ok());
  EXPECT_EQ(Watermark(), 5000);
  EXPECT_TRUE(Ack(Handles(batch)).ok());
  EXPECT_EQ(Watermark(), Now() - 10'000);
  // What was published within the band holds although it is acked: others may be as late.
  Publish("d", {{"ts", std::to_string(Now() - 60'000)}});
  const Millis late = Now() - 60'000;
  batch = Pull();
  EXPECT_TRUE(Ack(Handles(batch)).ok());
  EXPECT_EQ(Watermark(), late);
  broker_.Advance(std::chrono::seconds(11));
  EXPECT_EQ(Watermark(), Now() - 10'000);
}

TEST_F(PubSubSourceTest, ATopicGetsASubscriptionOfItsOwn) {
  settings_.subscription.clear();
  settings_.topic = kTopic;
  Publish("before");
  Begin();
  Publish("after");
  EXPECT_THAT(Values(Pull()), ElementsAre("after"));
  source_.reset();
  Begin();  // the job starts again: the subscription is there
  EXPECT_THAT(warnings_, IsEmpty());
  broker_.Advance(std::chrono::minutes(2));
  EXPECT_THAT(Values(Pull()), ElementsAre("after")) << "it was never acked";
}

TEST_F(PubSubSourceTest, AMissingSubscriptionIsToldAndTriedAgain) {
  settings_.subscription = "projects/p/subscriptions/s-2";
  Begin();
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("s-2"));
  ASSERT_TRUE(broker_.CreateSubscription("projects/p/subscriptions/s-2", kTopic).ok());
  broker_.Advance(std::chrono::seconds(2));
  Publish("a");
  EXPECT_THAT(Values(Pull()), ElementsAre("a"));
}

TEST_F(PubSubSourceTest, ADeletedSubscriptionIsToldToo) {
  Begin();
  Ask();
  ASSERT_TRUE(
      broker_.Do([&](auto reply) { broker_->DeleteSubscription(kSubscription, std::move(reply)); })
          .ok());
  EXPECT_FALSE(warnings_.empty());
}

TEST(CheckSubscriptionTest, TellsMisuse) {
  Subscription good;
  good.set_name(kSubscription);
  EXPECT_TRUE(CheckSubscription(good).error.ok());
  EXPECT_THAT(CheckSubscription(good).warnings, IsEmpty());
  Subscription push = good;
  push.mutable_push_config()->set_push_endpoint("https://example.com");
  EXPECT_EQ(CheckSubscription(push).error.code(), StatusCode::kFailedPrecondition);
  Subscription bad = good;
  bad.mutable_retry_policy();
  bad.mutable_dead_letter_policy();
  bad.set_enable_exactly_once_delivery(true);
  bad.set_enable_message_ordering(true);
  EXPECT_THAT(CheckSubscription(bad).warnings, SizeIs(4));
}

TEST(SourceWatermarkTest, Formula) {
  broker::BacklogInfo backlog;
  backlog.now = WallTime{100'000'000};
  ReadSettings plain;
  EXPECT_EQ(SourceWatermark(backlog, plain), 100'000);
  backlog.oldest_unacked_publish = WallTime{70'000'000};
  EXPECT_EQ(SourceWatermark(backlog, plain), 70'000);
  backlog.oldest_unacked_publish = WallTime{170'000'000};
  EXPECT_EQ(SourceWatermark(backlog, plain), 100'000) << "never past now";

  ReadSettings attribute{.timestamp_attribute = "ts", .band = std::chrono::seconds(10)};
  EXPECT_EQ(SourceWatermark(backlog, attribute), windowing::kMinTimestamp)
      << "until the backlog has been scanned";
  backlog.event_times_known = true;
  EXPECT_EQ(SourceWatermark(backlog, attribute), 90'000);
  backlog.min_event_ms_unacked = 95'000;
  EXPECT_EQ(SourceWatermark(backlog, attribute), 90'000);
  backlog.min_event_ms_in_band = 80'000;
  EXPECT_EQ(SourceWatermark(backlog, attribute), 80'000);
  backlog.min_event_ms_unacked = -5;
  EXPECT_EQ(SourceWatermark(backlog, attribute), -5);
}

}  // namespace
}  // namespace millrace::connectors::pubsub
