// The running shards of topics and subscriptions, by name for calls and by uid for the catalogue,
// liveness and metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/executor.h"
#include "base/shared_map.h"
#include "pubsub/broker.h"
#include "pubsub/catalog/catalog_shard.h"
#include "pubsub/subscription/subscription_shard.h"
#include "pubsub/topic/topic_shard.h"

namespace millrace::pubsub {

// A running subscription with the executor it lives on. Kept alive by whoever may still post to it.
// The shard itself is touched on the executor only.
struct SubscriptionHandle {
  SubscriptionHandle(SubscriptionUid uid_in, std::string name_in, TopicUid topic_in, Executor& pool)
      : uid(uid_in), name(std::move(name_in)), topic(topic_in), executor(pool) {}

  const SubscriptionUid uid;
  const std::string name;
  const TopicUid topic;
  SerialExecutor executor;
  std::shared_ptr<SubscriptionShard> shard;  // set before anybody else sees the handle
};

struct RegistryEnvironment {
  BrokerEnvironment broker;
  std::string ack_id_key;
  uint64_t boot_generation = 0;
};

// Guarantees: a name is found from the moment its creation is durable until its deletion is; a
// shard exists from the decision on, so that nothing published in between is missed. Find… may be
// called on any thread, the rest on the catalogue's executor (or the loading thread before Start).
// Owned by the broker and the catalogue. Does not belong here: deciding what exists.
class ShardRegistry : public CatalogListener {
 public:
  explicit ShardRegistry(RegistryEnvironment environment);

  std::shared_ptr<TopicShard> FindTopic(const std::string& name) const {
    return topic_names_.Find(name);
  }
  std::shared_ptr<SubscriptionHandle> FindSubscription(const std::string& name) const {
    return subscription_names_.Find(name);
  }

  void OnApplied(const CatalogChange& change) override;
  void OnDurable(const CatalogChange& change) override;
  uint64_t Attach(TopicUid topic) override;

  // Recovery: rows of a shard, records of shards (those of shards that are gone are passed over),
  // then Start.
  Status LoadRows(storage::Store& store);
  Status Replay(const storage::Record& record);
  void Start();

  // How many messages of each entry some subscription needs; `done` runs on `catalog`, the executor
  // all this lives on; shared, since the broker may go while shards still count.
  void CountLive(std::vector<storage::TopicEntry> entries, std::shared_ptr<Executor> catalog,
                 Callback<void(std::vector<uint32_t>)> done);
  // Posts to every subscription what is due by the clock, and lets go of shards that ended a while
  // ago.
  void KeepHouse(WallTime wall, SteadyTime steady);
  // Posts to all shards that they are ending, or (with OK) nothing; `done` runs, on any executor,
  // when all have seen it.
  void EndAll(const Status& status, Task done);

  std::vector<std::shared_ptr<TopicShard>> Topics() const;
  std::vector<std::shared_ptr<SubscriptionHandle>> Subscriptions() const;

 private:
  static constexpr Duration kRetiredFor = std::chrono::seconds(60);
  struct TopicHolder {
    std::shared_ptr<TopicShard> shard;
    std::vector<std::shared_ptr<SubscriptionHandle>> subscriptions;
  };
  struct Retired {
    std::shared_ptr<SubscriptionHandle> handle;
    SteadyTime since;
  };

  void AddTopic(const TopicRow& row);
  void AddSubscription(const SubscriptionRow& row);
  void DropTopic(const TopicRow& row);
  void DropSubscription(const SubscriptionRow& row);
  void TopicIsDurable(const CatalogChange& change);
  void SubscriptionIsDurable(const CatalogChange& change);

  const RegistryEnvironment environment_;
  SharedMap<std::string, std::shared_ptr<TopicShard>> topic_names_;
  SharedMap<std::string, std::shared_ptr<SubscriptionHandle>> subscription_names_;

  absl::flat_hash_map<TopicUid, TopicHolder> topics_;
  absl::flat_hash_map<SubscriptionUid, std::shared_ptr<SubscriptionHandle>> subscriptions_;
  // Applied, with what to know at Start or when durable.
  absl::flat_hash_map<SubscriptionUid, std::string> unstarted_;
  absl::flat_hash_map<TopicUid, TopicRow> recovered_topics_;
  std::vector<Retired> retired_;
  bool recovering_ = true;
};

}  // namespace millrace::pubsub
