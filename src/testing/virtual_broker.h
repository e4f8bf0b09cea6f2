// A broker in virtual time over memory, for tests: nothing happens until the test says so, commits
// apart from the rest.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pubsub/broker.h"
#include "storage/memory_log.h"
#include "storage/memory_store.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"
#include "testing/manual_timers.h"

namespace millrace::pubsub {

// One thread. Crash forgets what was not committed and comes up again from what was.
class VirtualBroker {
 public:
  VirtualBroker() : store_(std::make_unique<storage::MemoryStore>(true)) { Boot(); }
  ~VirtualBroker() { broker_.reset(); }

  Broker& operator*() { return *broker_; }
  Broker* operator->() { return broker_.get(); }
  testing::FakeClock& clock() { return clock_; }
  testing::ManualTimers& timers() { return timers_; }
  Executor& executor() { return pool_; }
  storage::CommitLog& log() { return *storage_->log; }

  // Runs what is queued but commits nothing.
  void RunWithoutCommits() { pool_.RunAll(); }
  void Run() {
    while (pool_.RunAll() + commits_.RunAll() > 0) {
    }
  }
  // Moves time in one step, then runs what became due.
  void Advance(Duration by) {
    clock_.Advance(by);
    do {
      Run();
    } while (timers_.RunDue() > 0);
    Run();
  }
  void Crash() {
    broker_.reset();
    timers_.Clear();
    store_.reset(static_cast<storage::MemoryStore*>(storage_->store.release()));
    storage_.reset();
    pool_.RunAll();
    commits_.RunAll();
    store_->RevertToFlushed();
    Boot();
  }
  void Checkpoint() {
    std::atomic<bool> done = false;
    storage_->checkpointer->Run([&](Status status) {
      EXPECT_TRUE(status.ok()) << status;
      done = true;
    });
    while (!done) {
      Run();
      std::this_thread::yield();
    }
  }

  // Calls and waits for the answer, commits included.
  template <typename T, typename Call>
  StatusOr<T> Get(Call call) {
    std::optional<StatusOr<T>> answer;
    call([&](StatusOr<T> value) { answer = std::move(value); });
    Run();
    if (!answer) return Internal("no answer");
    return *std::move(answer);
  }
  template <typename Call>
  Status Do(Call call) {
    std::optional<Status> answer;
    call([&](Status status) { answer = std::move(status); });
    Run();
    return answer ? *answer : Internal("no answer");
  }

  StatusOr<pb::Topic> CreateTopic(const std::string& name) {
    pb::Topic topic;
    topic.set_name(name);
    return Get<pb::Topic>([&](auto reply) { broker_->CreateTopic(topic, std::move(reply)); });
  }
  StatusOr<pb::Subscription> CreateSubscription(const pb::Subscription& subscription) {
    return Get<pb::Subscription>(
        [&](auto reply) { broker_->CreateSubscription(subscription, std::move(reply)); });
  }
  StatusOr<pb::Subscription> CreateSubscription(const std::string& name, const std::string& topic) {
    pb::Subscription subscription;
    subscription.set_name(name);
    subscription.set_topic(topic);
    return CreateSubscription(subscription);
  }
  StatusOr<PublishResult> Publish(const std::string& topic, const std::vector<std::string>& texts) {
    return Get<PublishResult>(
        [&](auto reply) { broker_->Publish(Request(topic, texts), std::move(reply)); });
  }
  static SharedBytes Request(const std::string& topic, const std::vector<std::string>& texts) {
    pb::PublishRequest request;
    request.set_topic(topic);
    for (const std::string& text : texts) request.add_messages()->set_data(text);
    return SharedBytes(request.SerializeAsString());
  }
  StatusOr<std::vector<Delivery>> Pull(const std::string& subscription, int max = 1000) {
    std::shared_ptr<void> ticket;
    Broker::PullRequest request;
    request.subscription = subscription;
    request.max_messages = max;
    request.return_immediately = true;
    return Get<std::vector<Delivery>>(
        [&](auto reply) { ticket = broker_->Pull(request, std::move(reply)); });
  }
  // The data of what a pull brings; "error: …" for a refusal.
  std::vector<std::string> PullTexts(const std::string& subscription, int max = 1000) {
    auto deliveries = Pull(subscription, max);
    if (!deliveries.ok()) return {"error: " + std::string(MessageOf(deliveries.status()))};
    std::vector<std::string> texts;
    for (const Delivery& delivery : *deliveries) texts.push_back(Parse(delivery).data());
    return texts;
  }
  static pb::PubsubMessage Parse(const Delivery& delivery) {
    pb::PubsubMessage message;
    EXPECT_TRUE(
        message.ParseFromArray(delivery.message.data(), static_cast<int>(delivery.message.size())));
    return message;
  }
  Status Acknowledge(const std::string& subscription, const std::vector<Delivery>& deliveries) {
    std::vector<std::string> ids;
    for (const Delivery& delivery : deliveries) ids.push_back(delivery.ack_id);
    return Do([&](auto reply) { broker_->Acknowledge(subscription, ids, std::move(reply)); });
  }

 private:
  void Boot() {
    storage_ = std::make_unique<storage::Storage>();
    storage_->log = storage::MakeMemoryLog(&commits_, contents_);
    storage_->store = std::move(store_);
    storage_->checkpointer = std::make_unique<storage::Checkpointer>(
        *storage_->log, *storage_->store, storage::Checkpointer::Options{});
    BrokerEnvironment environment;
    environment.storage = storage_.get();
    environment.clock = &clock_;
    environment.timers = &timers_;
    environment.pool = &pool_;
    environment.blocking = &pool_;
    environment.random_seed = 7;
    auto broker = Broker::Load(environment, {});
    ASSERT_TRUE(broker.ok()) << broker.status();
    broker_ = *std::move(broker);
    auto position = storage::Checkpointer::ReplayPosition(*storage_->store);
    ASSERT_TRUE(position.ok()) << position.status();
    Status replayed = storage_->log->Replay(
        *position,
        [&](storage::Lsn, const storage::Record& record) { return broker_->Replay(record); });
    ASSERT_TRUE(replayed.ok()) << replayed;
    broker_->Start();
    Run();
  }

  testing::FakeClock clock_;
  testing::ManualTimers timers_{clock_};
  testing::ManualExecutor pool_;
  testing::ManualExecutor commits_;
  std::shared_ptr<storage::MemoryLogContents> contents_ = storage::MakeMemoryLogContents();
  std::unique_ptr<storage::MemoryStore> store_;
  std::unique_ptr<storage::Storage> storage_;
  std::unique_ptr<Broker> broker_;
};

}  // namespace millrace::pubsub
