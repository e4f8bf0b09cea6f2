// A broker for this folder's tests: keeps topics and subscriptions as given, records what it was
// asked and leaves deliveries to the test.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "pubsub/broker.h"

namespace millrace::api {

namespace pb = google::pubsub::v1;

// What a stream was told, and its consumer for the test to call.
struct FakeStreamState {
  Mutex mutex;
  CondVar changed;
  pubsub::StreamOptions options;
  std::shared_ptr<pubsub::StreamConsumer> consumer;
  int demands MR_GUARDED_BY(mutex) = 0;
  std::vector<std::string> calls MR_GUARDED_BY(mutex);
  bool closed MR_GUARDED_BY(mutex) = false;

  template <typename Condition>
  void Await(Condition condition) {
    MutexLock lock(mutex);
    while (!condition()) changed.Wait(mutex);
  }
  void Note(std::string call) {
    MutexLock lock(mutex);
    calls.push_back(std::move(call));
    changed.NotifyAll();
  }
};

class FakeStream : public pubsub::Stream {
 public:
  explicit FakeStream(std::shared_ptr<FakeStreamState> state) : state_(std::move(state)) {}
  ~FakeStream() override { Close(); }
  void Demand(size_t) override {
    MutexLock lock(state_->mutex);
    ++state_->demands;
    state_->changed.NotifyAll();
  }
  void SetAckDeadline(Duration deadline) override {
    state_->Note("deadline " + std::to_string(deadline.count() / 1'000'000));
  }
  void Acknowledge(std::vector<std::string> ids) override { state_->Note("ack " + ids.at(0)); }
  void ModifyAckDeadline(std::vector<std::string> ids, Duration deadline) override {
    state_->Note("modify " + ids.at(0) + " " + std::to_string(deadline.count() / 1'000'000));
  }
  void Close() override {
    MutexLock lock(state_->mutex);
    state_->closed = true;
    state_->changed.NotifyAll();
  }

 private:
  std::shared_ptr<FakeStreamState> state_;
};

// Answers on the caller's thread, before the call returns.
class FakeBroker : public pubsub::Broker {
 public:
  template <typename T>
  using Reply = pubsub::Reply<T>;
  using StatusReply = pubsub::StatusReply;

  Status Replay(const storage::Record&) override { return OkStatus(); }
  void Start() override {}
  void Stop() override {}

  void CreateTopic(const pb::Topic& topic, Reply<pb::Topic> reply) override {
    if (!topics.emplace(topic.name(), topic).second) return reply(AlreadyExists("taken"));
    reply(topic);
  }
  void GetTopic(const std::string& name, Reply<pb::Topic> reply) override {
    auto it = topics.find(name);
    if (it == topics.end()) return reply(NotFound("Resource not found (resource=" + name + ")."));
    reply(it->second);
  }
  void UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply) override {
    last_topic_update = request;
    reply(request.topic());
  }
  void DeleteTopic(const std::string& name, StatusReply reply) override {
    reply(topics.erase(name) == 1 ? OkStatus() : NotFound("no"));
  }
  void ListTopics(const pb::ListTopicsRequest& request,
                  Reply<pb::ListTopicsResponse> reply) override {
    last_list = request;
    pb::ListTopicsResponse response;
    for (const auto& [name, topic] : topics) *response.add_topics() = topic;
    reply(response);
  }
  void ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest&,
                              Reply<pb::ListTopicSubscriptionsResponse> reply) override {
    reply(pb::ListTopicSubscriptionsResponse());
  }
  void CreateSubscription(const pb::Subscription& subscription,
                          Reply<pb::Subscription> reply) override {
    pb::Subscription made = subscription;
    made.mutable_push_config();
    reply(made);
  }
  void GetSubscription(const std::string& name, Reply<pb::Subscription> reply) override {
    pb::Subscription subscription;
    subscription.set_name(name);
    reply(subscription);
  }
  void UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                          Reply<pb::Subscription> reply) override {
    last_subscription_update = request;
    reply(request.subscription());
  }
  void DeleteSubscription(const std::string&, StatusReply reply) override { reply(OkStatus()); }
  void ListSubscriptions(const pb::ListSubscriptionsRequest&,
                         Reply<pb::ListSubscriptionsResponse> reply) override {
    reply(pb::ListSubscriptionsResponse());
  }
  void Publish(SharedBytes request, Reply<pubsub::PublishResult> reply) override {
    pb::PublishRequest parsed;
    if (!parsed.ParseFromArray(request.data(), static_cast<int>(request.size()))) {
      return reply(InvalidArgument("bad request"));
    }
    last_publish = parsed;
    reply(pubsub::PublishResult{1'000'000'000'000'000,
                                static_cast<uint32_t>(parsed.messages_size())});
  }
  void PublishOnce(const std::string&, const std::string&, uint64_t, std::vector<SharedBytes>,
                   StatusReply reply) override {
    reply(OkStatus());
  }
  // Pulls wait until the test answers them; a dropped handle shows as an expired one.
  struct WaitingPull {
    PullRequest request;
    Reply<std::vector<pubsub::Delivery>> reply;
    std::weak_ptr<void> handle;
  };
  std::shared_ptr<void> Pull(PullRequest request,
                             Reply<std::vector<pubsub::Delivery>> reply) override {
    auto handle = std::make_shared<int>(0);
    MutexLock lock(mutex);
    pulls.push_back({std::move(request), std::move(reply), handle});
    changed.NotifyAll();
    return handle;
  }
  WaitingPull TakePull() {
    MutexLock lock(mutex);
    while (pulls.empty()) changed.Wait(mutex);
    WaitingPull pull = std::move(pulls.front());
    pulls.pop_front();
    return pull;
  }
  void Acknowledge(const std::string& subscription, std::vector<std::string> ids,
                   StatusReply reply) override {
    {
      MutexLock lock(mutex);
      acked = std::move(ids);
    }
    reply(ack_status);
  }
  void ModifyAckDeadline(const std::string& subscription, std::vector<std::string> ids,
                         int32_t seconds, StatusReply reply) override {
    {
      MutexLock lock(mutex);
      modified = std::move(ids);
      modified_seconds = seconds;
      changed.NotifyAll();
    }
    reply(OkStatus());
  }
  void OpenStream(pubsub::StreamOptions options, std::shared_ptr<pubsub::StreamConsumer> consumer,
                  Reply<std::unique_ptr<pubsub::Stream>> reply) override {
    if (options.subscription.ends_with("/missing")) return reply(NotFound("no such thing"));
    auto state = std::make_shared<FakeStreamState>();
    state->options = std::move(options);
    state->consumer = std::move(consumer);
    {
      MutexLock lock(mutex);
      streams.push_back(state);
      changed.NotifyAll();
    }
    reply(std::unique_ptr<pubsub::Stream>(std::make_unique<FakeStream>(state)));
  }
  std::shared_ptr<FakeStreamState> TakeStream() {
    MutexLock lock(mutex);
    while (streams.empty()) changed.Wait(mutex);
    auto state = streams.front();
    streams.pop_front();
    return state;
  }
  void WatchBacklog(const std::string&, std::optional<std::string>, Duration,
                    Reply<std::unique_ptr<pubsub::BacklogWatch>> reply) override {
    reply(Unimplemented("not in the fake"));
  }
  void Metrics(Callback<void(std::string)> reply) override { reply(""); }

  Mutex mutex;
  CondVar changed;
  std::map<std::string, pb::Topic> topics;
  pb::UpdateTopicRequest last_topic_update;
  pb::UpdateSubscriptionRequest last_subscription_update;
  pb::ListTopicsRequest last_list;
  pb::PublishRequest last_publish;
  Status ack_status;
  std::vector<std::string> acked, modified;
  int32_t modified_seconds = -1;
  std::deque<WaitingPull> pulls;
  std::deque<std::shared_ptr<FakeStreamState>> streams;
};

}  // namespace millrace::api
