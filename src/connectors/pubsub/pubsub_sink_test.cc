#include "connectors/pubsub/pubsub_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "testing/virtual_broker.h"
#include "windowing/wire.h"

namespace millrace::connectors::pubsub {
namespace {

namespace broker = millrace::pubsub;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr char kTopic[] = "projects/p/topics/t-1";
constexpr char kOther[] = "projects/p/topics/t-2";
constexpr char kSubscription[] = "projects/p/subscriptions/s-1";
constexpr char kOtherSubscription[] = "projects/p/subscriptions/s-2";

// An element to write: its topic (empty: the sink's), data, timestamp.
struct Outgoing {
  std::string topic, data;
  windowing::Millis timestamp = 0;
  std::map<std::string, std::string> attributes = {};
};

class PubSubSinkTest : public ::testing::Test {
 protected:
  PubSubSinkTest() {
    for (auto [topic, subscription] :
         {std::pair(kTopic, kSubscription), std::pair(kOther, kOtherSubscription)}) {
      EXPECT_TRUE(broker_.CreateTopic(topic).ok());
      EXPECT_TRUE(broker_.CreateSubscription(subscription, topic).ok());
    }
    settings_.topic = kTopic;
  }
  ~PubSubSinkTest() override { sink_.reset(); }

  void Begin() {
    sink_ = MakePubSubSink(settings_, &*broker_,
                           [this](Status status) { told_.emplace_back(MessageOf(status)); });
  }
  std::shared_ptr<const engine::Chunk> Chunk(const std::vector<Outgoing>& all) {
    auto chunk = std::make_shared<engine::Chunk>();
    for (const Outgoing& one : all) {
      broker::pb::PubsubMessage message;
      message.set_data(one.data);
      message.mutable_attributes()->insert(one.attributes.begin(), one.attributes.end());
      std::string& value = values_.emplace_back();
      if (!one.topic.empty()) windowing::AppendBytes(value, one.topic);
      windowing::AppendBytes(value, message.SerializeAsString());
      engine::Element element;
      element.value = value;
      element.timestamp = one.timestamp;
      chunk->elements.push_back(element);
    }
    return chunk;
  }
  Status Write(uint64_t sequence, std::shared_ptr<const engine::Chunk> chunk,
               const std::string& producer = "job/stage/0") {
    return broker_.Do(
        [&](auto done) { sink_->Write(producer, sequence, std::move(chunk), std::move(done)); });
  }
  // All there is and is not leased; one pull brings 1,000 at most.
  std::vector<broker::pb::PubsubMessage> Stored() {
    std::vector<broker::pb::PubsubMessage> messages;
    while (true) {
      auto deliveries = broker_.Pull(kSubscription);
      EXPECT_TRUE(deliveries.ok()) << deliveries.status();
      if (!deliveries.ok() || deliveries->empty()) return messages;
      for (const auto& delivery : *deliveries)
        messages.push_back(broker::VirtualBroker::Parse(delivery));
    }
  }

  broker::VirtualBroker broker_;
  WriteSettings settings_;
  std::list<std::string> values_;  // what elements look at
  std::vector<std::string> told_;
  std::unique_ptr<engine::Sink> sink_;
};

TEST_F(PubSubSinkTest, WritesInOrder) {
  Begin();
  EXPECT_TRUE(Write(1, Chunk({{"", "a", 0, {{"k", "v"}}}, {"", "b"}})).ok());
  const auto stored = Stored();
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_EQ(stored[0].data(), "a");
  EXPECT_EQ(stored[0].attributes().at("k"), "v");
  EXPECT_EQ(stored[1].data(), "b");
}

TEST_F(PubSubSinkTest, ARepeatedWriteIsStoredOnce) {
  Begin();
  auto chunk = Chunk({{"", "a"}, {"", "b"}});
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(1, chunk).ok()) << "a repeat is no failure";
  EXPECT_THAT(Stored(), SizeIs(2));
  broker_.Crash();
  Begin();
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(2, Chunk({{"", "c"}})).ok());
  EXPECT_THAT(broker_.PullTexts(kSubscription), ElementsAre("a", "b", "c"))
      << "leases are gone with the crash; the repeat is not stored again";
  EXPECT_TRUE(Write(1, chunk, "job/stage/1").ok());
  EXPECT_THAT(Stored(), SizeIs(2)) << "another producer's sequence is another";
}

TEST_F(PubSubSinkTest, LargeChunksKeepTheNumbersOfTheirParts) {
  Begin();
  std::vector<Outgoing> many;
  for (int i = 0; i < 2500; ++i) many.push_back({"", std::to_string(i)});
  auto chunk = Chunk(many);
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(2, Chunk({{"", "last"}})).ok());
  const auto stored = Stored();
  ASSERT_EQ(stored.size(), 2501u);
  for (int i = 0; i < 2500; ++i) ASSERT_EQ(stored[i].data(), std::to_string(i));
}

TEST_F(PubSubSinkTest, PartsKeepToTheSizeOfOnePublish) {
  Begin();
  std::vector<Outgoing> large;
  for (int i = 0; i < 3; ++i) large.push_back({"", std::string(4'000'000, 'a' + i)});
  auto chunk = Chunk(large);
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(1, chunk).ok());
  const auto stored = Stored();
  ASSERT_EQ(stored.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stored[i].data()[0], 'a' + i);
}

TEST_F(PubSubSinkTest, AddsItsAttributes) {
  settings_.id_attribute = "id";
  settings_.timestamp_attribute = "ts";
  Begin();
  EXPECT_TRUE(Write(7, Chunk({{"", "a", 1234, {{"ts", "old"}}}, {"", "b", 5678}})).ok());
  const auto stored = Stored();
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_EQ(stored[0].attributes().at("ts"), "1234") << "the last of an attribute wins";
  EXPECT_EQ(stored[1].attributes().at("ts"), "5678");
  EXPECT_EQ(stored[0].attributes().at("id"), "job/stage/0/7/0") << "the same at every try";
  EXPECT_EQ(stored[1].attributes().at("id"), "job/stage/0/7/1");
}

TEST_F(PubSubSinkTest, ElementsMayNameTheirTopics) {
  settings_.topic.clear();
  Begin();
  auto chunk = Chunk({{kTopic, "a"}, {"/topics/p/t-2", "b"}, {kTopic, "c"}});
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_TRUE(Write(1, chunk).ok());
  EXPECT_THAT(broker_.PullTexts(kSubscription), UnorderedElementsAre("a", "c"));
  EXPECT_THAT(broker_.PullTexts(kOtherSubscription), ElementsAre("b"));
}

TEST_F(PubSubSinkTest, ADeletedTopicHoldsTheWriteWithAWarning) {
  Begin();
  ASSERT_TRUE(broker_.Do([&](auto reply) { broker_->DeleteTopic(kTopic, std::move(reply)); }).ok());
  EXPECT_EQ(Write(1, Chunk({{"", "a"}})).code(), StatusCode::kNotFound);
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0], HasSubstr(kTopic));
  ASSERT_TRUE(broker_.CreateTopic(kTopic).ok());
  ASSERT_TRUE(broker_.CreateSubscription("projects/p/subscriptions/s-3", kTopic).ok());
  EXPECT_TRUE(Write(1, Chunk({{"", "a"}})).ok());
  EXPECT_THAT(broker_.PullTexts("projects/p/subscriptions/s-3"), ElementsAre("a"));
}

TEST_F(PubSubSinkTest, WhatIsNoMessageIsRefused) {
  settings_.topic.clear();
  Begin();
  EXPECT_EQ(Write(1, Chunk({{"no topic name", "a"}})).code(), StatusCode::kInvalidArgument);
  auto chunk = std::make_shared<engine::Chunk>();
  chunk->elements.emplace_back();
  EXPECT_EQ(Write(2, chunk).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(told_, SizeIs(2));
  EXPECT_THAT(Stored(), IsEmpty());
}

TEST_F(PubSubSinkTest, AStoppedSinkWritesNoMore) {
  Begin();
  sink_->Stop();
  EXPECT_EQ(Write(1, Chunk({{"", "a"}})).code(), StatusCode::kCancelled);
  EXPECT_THAT(Stored(), IsEmpty());
}

}  // namespace
}  // namespace millrace::connectors::pubsub
