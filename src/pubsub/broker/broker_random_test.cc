// The whole broker against a model, by a seed: topics and subscriptions come and go, messages are
// published, pulled, acked or left, the process crashes at any moment and checkpoints run in
// between. What was answered is so; what was not committed never was.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "testing/virtual_broker.h"

namespace millrace::pubsub {
namespace {

struct SubscriptionModel {
  std::string topic;  // empty: deleted
  std::set<std::string> unacked;
};

class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed) {}

  void Step() {
    switch (random_() % 16) {
      case 0:
        return CreateTopic();
      case 1:
        return random_() % 3 == 0 ? DeleteTopic() : CreateTopic();
      case 2:
        return CreateSubscription();
      case 3:
        return random_() % 3 == 0 ? DeleteSubscription() : CreateSubscription();
      case 4:
        return broker_.Crash();
      case 5:
        return broker_.Checkpoint();
      case 6:
        return broker_.Advance(std::chrono::seconds(random_() % 15));
      case 7:
      case 8:
      case 9:
        return Publish();
      case 10:
        return PublishUncommitted();
      default:
        return PullAndAck();
    }
  }

  // Every subscription gives exactly what it should.
  void CheckAll() {
    broker_.Advance(std::chrono::seconds(11));
    for (const auto& [name, model] : subscriptions_) {
      std::set<std::string> got;
      while (true) {
        auto texts = broker_.PullTexts(name, 50);
        if (texts.empty()) break;
        for (const std::string& text : texts)
          ASSERT_TRUE(got.insert(text).second) << text << " twice on " << name;
      }
      ASSERT_EQ(got, model.unacked) << name;
    }
    broker_.Advance(std::chrono::seconds(11));
  }

 private:
  std::string Topic() { return "projects/p/topics/t-" + std::to_string(random_() % 3); }
  std::string Subscription() {
    return "projects/p/subscriptions/s-" + std::to_string(random_() % 5);
  }
  std::string Text() { return "m" + std::to_string(next_text_++); }

  void CreateTopic() {
    std::string name = Topic();
    Status status = broker_.CreateTopic(name).status();
    ASSERT_EQ(status.code(),
              topics_.insert(name).second ? StatusCode::kOk : StatusCode::kAlreadyExists);
  }
  void DeleteTopic() {
    std::string name = Topic();
    Status status = broker_.Do([&](auto reply) { broker_->DeleteTopic(name, std::move(reply)); });
    ASSERT_EQ(status.code(), topics_.erase(name) > 0 ? StatusCode::kOk : StatusCode::kNotFound);
    ids_.erase(name);  // unique within an incarnation
    for (auto& [subscription, model] : subscriptions_) {
      if (model.topic == name) model.topic.clear();
    }
  }
  void CreateSubscription() {
    std::string name = Subscription(), topic = Topic();
    Status status = broker_.CreateSubscription(name, topic).status();
    if (!topics_.contains(topic)) {
      ASSERT_EQ(status.code(), StatusCode::kNotFound);
    } else if (subscriptions_.contains(name)) {
      ASSERT_EQ(status.code(), StatusCode::kAlreadyExists);
    } else {
      ASSERT_TRUE(status.ok()) << status;
      subscriptions_[name].topic = topic;
    }
  }
  void DeleteSubscription() {
    std::string name = Subscription();
    Status status =
        broker_.Do([&](auto reply) { broker_->DeleteSubscription(name, std::move(reply)); });
    ASSERT_EQ(status.code(),
              subscriptions_.erase(name) > 0 ? StatusCode::kOk : StatusCode::kNotFound);
  }
  void Publish() {
    std::string topic = Topic();
    std::vector<std::string> texts;
    for (uint32_t i = 0; i <= random_() % 20; ++i) texts.push_back(Text());
    auto result = broker_.Publish(topic, texts);
    ASSERT_EQ(result.status().code(),
              topics_.contains(topic) ? StatusCode::kOk : StatusCode::kNotFound);
    if (!result.ok()) return;
    for (uint32_t i = 0; i < result->count; ++i) {
      ASSERT_TRUE(ids_[topic].insert(result->first_message_id + i).second) << "an id came twice";
    }
    for (auto& [name, model] : subscriptions_) {
      if (model.topic == topic) model.unacked.insert(texts.begin(), texts.end());
    }
  }
  // Decided, perhaps together with acks, but the process dies before the commit.
  void PublishUncommitted() {
    bool answered = false;
    std::vector<std::string> acks;
    std::string name = Subscription();
    if (subscriptions_.contains(name)) {
      auto deliveries = broker_.Pull(name, 5);
      ASSERT_TRUE(deliveries.ok());
      for (const Delivery& delivery : *deliveries) acks.push_back(delivery.ack_id);
    }
    std::string topic = Topic();
    // One that is stored nowhere may be answered at once.
    bool stored = std::any_of(subscriptions_.begin(), subscriptions_.end(),
                              [&](const auto& one) { return one.second.topic == topic; });
    broker_->Publish(VirtualBroker::Request(topic, {Text()}),
                     [&](StatusOr<PublishResult> result) { answered |= result.ok() && stored; });
    if (!acks.empty()) broker_->Acknowledge(name, acks, [&](Status) { answered = true; });
    broker_.RunWithoutCommits();
    ASSERT_FALSE(answered);
    broker_.Crash();
  }
  void PullAndAck() {
    std::string name = Subscription();
    auto deliveries = broker_.Pull(name, 1 + static_cast<int>(random_() % 30));
    if (!subscriptions_.contains(name)) {
      ASSERT_EQ(deliveries.status().code(), StatusCode::kNotFound);
      return;
    }
    ASSERT_TRUE(deliveries.ok()) << deliveries.status();
    SubscriptionModel& model = subscriptions_[name];
    std::vector<Delivery> acked;
    for (const Delivery& delivery : *deliveries) {
      std::string text = VirtualBroker::Parse(delivery).data();
      ASSERT_TRUE(model.unacked.contains(text)) << text << " on " << name;
      if (random_() % 3 > 0) acked.push_back(delivery);
    }
    if (acked.empty()) return;
    ASSERT_TRUE(broker_.Acknowledge(name, acked).ok());
    for (const Delivery& delivery : acked)
      model.unacked.erase(VirtualBroker::Parse(delivery).data());
  }

  std::mt19937 random_;
  VirtualBroker broker_;
  std::set<std::string> topics_;
  std::map<std::string, SubscriptionModel> subscriptions_;
  std::map<std::string, std::set<uint64_t>> ids_;
  uint64_t next_text_ = 0;
};

TEST(BrokerRandomTest, AgreesWithTheModel) {
  uint32_t seed = std::random_device{}();
  for (int run = 0; run < 20; ++run, ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRun random(seed);
    for (int step = 0; step < 400; ++step) {
      random.Step();
      if (HasFatalFailure()) return;
      if (step % 50 == 49) random.CheckAll();
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace millrace::pubsub
