// The broker of one process: finds the shard a call is for and posts it there.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "pubsub/broker.h"
#include "pubsub/broker/housekeeping.h"
#include "pubsub/broker/shard_registry.h"
#include "pubsub/catalog/catalog_shard.h"

namespace millrace::pubsub {

// Guarantees what broker.h says. Thread-safe: it holds no state but what never changes after Start,
// and directories that lock for themselves. Owned by apps/ and tests. Does not belong here: any
// decision about a topic, a subscription or the catalogue.
class LocalBroker : public Broker {
 public:
  LocalBroker(BrokerEnvironment environment, BrokerOptions options,
              std::shared_ptr<ShardRegistry> registry, std::string ack_id_key);
  ~LocalBroker() override;

  // Fills the fresh broker from the store.
  Status LoadStore();
  Status Replay(const storage::Record& record) override;
  void Start() override;
  void Stop() override;

  void CreateTopic(const pb::Topic& topic, Reply<pb::Topic> reply) override;
  void GetTopic(const std::string& name, Reply<pb::Topic> reply) override;
  void UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply) override;
  void DeleteTopic(const std::string& name, StatusReply reply) override;
  void ListTopics(const pb::ListTopicsRequest& request,
                  Reply<pb::ListTopicsResponse> reply) override;
  void ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest& request,
                              Reply<pb::ListTopicSubscriptionsResponse> reply) override;
  void CreateSubscription(const pb::Subscription& subscription,
                          Reply<pb::Subscription> reply) override;
  void GetSubscription(const std::string& name, Reply<pb::Subscription> reply) override;
  void UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                          Reply<pb::Subscription> reply) override;
  void DeleteSubscription(const std::string& name, StatusReply reply) override;
  void ListSubscriptions(const pb::ListSubscriptionsRequest& request,
                         Reply<pb::ListSubscriptionsResponse> reply) override;

  void Publish(SharedBytes request, Reply<PublishResult> reply) override;
  void PublishOnce(const std::string& topic, const std::string& producer, uint64_t sequence,
                   std::vector<SharedBytes> messages, StatusReply reply) override;

  std::shared_ptr<void> Pull(PullRequest request, Reply<std::vector<Delivery>> reply) override;
  void Acknowledge(const std::string& subscription, std::vector<std::string> ack_ids,
                   StatusReply reply) override;
  void ModifyAckDeadline(const std::string& subscription, std::vector<std::string> ack_ids,
                         int32_t seconds, StatusReply reply) override;
  void OpenStream(StreamOptions options, std::shared_ptr<StreamConsumer> consumer,
                  Reply<std::unique_ptr<Stream>> reply) override;
  void WatchBacklog(const std::string& subscription, std::optional<std::string> timestamp_attribute,
                    Duration band, Reply<std::unique_ptr<BacklogWatch>> reply) override;
  void Metrics(Callback<void(std::string)> reply) override;

 private:
  // Posts a call to the catalogue, or its refusal when the broker is stopping.
  template <typename Request, typename R>
  void OnCatalog(void (CatalogShard::*call)(Request, R), std::decay_t<Request> request, R reply);
  StatusOr<std::shared_ptr<SubscriptionHandle>> FindSubscription(const std::string& name) const;
  StatusOr<std::shared_ptr<SubscriptionHandle>> CheckAckIds(
      const std::string& subscription, std::vector<std::string>* ack_ids) const;
  Status MayCall() const;

  const BrokerEnvironment environment_;
  const std::shared_ptr<ShardRegistry> registry_;
  const std::string ack_id_key_;
  const std::shared_ptr<CatalogShard> catalog_;
  std::atomic<bool> stopped_{false};
  const std::shared_ptr<Housekeeping> housekeeping_;
};

}  // namespace millrace::pubsub
