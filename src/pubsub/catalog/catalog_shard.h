// State machine of the catalogue: which topics and subscriptions exist, with which settings.
//
// decide → record → apply → effects: a call is decided against everything decided before it, its
// rows are applied and appended in one turn, and when they are durable the listener makes them
// seen, then the reply is given. An answer that shows a state whose commit is pending (a get, a
// list, a refusal) waits for that commit.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/executor.h"
#include "pubsub/broker.h"
#include "pubsub/catalog/catalog_rows.h"
#include "storage/checkpoint.h"
#include "storage/commit_log.h"

namespace millrace::pubsub {

// One resource that came, changed or went. Exactly one of the two is set; what went is shown as it
// was.
struct CatalogChange {
  std::shared_ptr<const TopicRow> topic;
  std::shared_ptr<const SubscriptionRow> subscription;
  bool gone = false;
};

// Whoever keeps the shards of topics and subscriptions. Called on the catalogue's executor, or on
// the loading thread.
class CatalogListener {
 public:
  virtual ~CatalogListener() = default;
  // Decided, not durable; or found while recovering.
  virtual void OnApplied(const CatalogChange& change) = 0;
  virtual void OnDurable(const CatalogChange& change) = 0;
  // A subscription to this topic is being made: the offset it begins at.
  virtual uint64_t Attach(TopicUid topic) = 0;
};

struct CatalogEnvironment {
  Executor* pool = nullptr;
  storage::CommitLog* log = nullptr;
  storage::Checkpointer* checkpointer = nullptr;
  uint64_t random_seed = 0;  // names the server gives
};

// Guarantees: names are unique at any moment; uids are never used twice; a deleted topic's
// subscriptions live on. Lives on its own serial executor: calls of Broker's names are posted there
// by the caller. Owned by the broker. Does not belong here: checks of single values
// (resource_settings), running shards (the listener), messages.
class CatalogShard : public storage::Checkpointed,
                     public std::enable_shared_from_this<CatalogShard> {
 public:
  CatalogShard(CatalogEnvironment environment, std::shared_ptr<CatalogListener> listener);

  // Recovery, on the loading thread, before Start.
  Status LoadRow(std::string_view key, std::string_view value);
  Status Replay(const storage::Record& record);
  void Start();

  SerialExecutor& executor() { return executor_; }
  void WriteCheckpoint(Callback<void(storage::WriteBatch)> done) override;

  // On the executor.
  void CreateTopic(pb::Topic topic, Reply<pb::Topic> reply);
  void GetTopic(const std::string& name, Reply<pb::Topic> reply);
  void UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply);
  void DeleteTopic(const std::string& name, StatusReply reply);
  void ListTopics(const pb::ListTopicsRequest& request, Reply<pb::ListTopicsResponse> reply);
  void ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest& request,
                              Reply<pb::ListTopicSubscriptionsResponse> reply);
  void CreateSubscription(pb::Subscription subscription, Reply<pb::Subscription> reply);
  void GetSubscription(const std::string& name, Reply<pb::Subscription> reply);
  void UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                          Reply<pb::Subscription> reply);
  void DeleteSubscription(const std::string& name, StatusReply reply);
  void ListSubscriptions(const pb::ListSubscriptionsRequest& request,
                         Reply<pb::ListSubscriptionsResponse> reply);

 private:
  struct TopicState {
    std::shared_ptr<const TopicRow> row;
    absl::btree_set<std::string> subscriptions;  // names
  };

  StatusOr<pb::Topic> DecideCreateTopic(pb::Topic topic, storage::WriteBatch* rows);
  StatusOr<pb::Topic> DecideUpdateTopic(const pb::UpdateTopicRequest& request,
                                        storage::WriteBatch* rows);
  Status DecideDeleteTopic(const std::string& name, storage::WriteBatch* rows);
  StatusOr<pb::Subscription> DecideCreateSubscription(pb::Subscription subscription,
                                                      storage::WriteBatch* rows);
  StatusOr<pb::Subscription> DecideUpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                                                      storage::WriteBatch* rows);
  Status DecideDeleteSubscription(const std::string& name, storage::WriteBatch* rows);
  StatusOr<pb::ListTopicsResponse> ReadTopics(const pb::ListTopicsRequest& request) const;
  StatusOr<pb::ListTopicSubscriptionsResponse> ReadTopicSubscriptions(
      const pb::ListTopicSubscriptionsRequest& request) const;
  StatusOr<pb::ListSubscriptionsResponse> ReadSubscriptions(
      const pb::ListSubscriptionsRequest& request) const;

  StatusOr<const TopicState*> FindTopic(const std::string& name) const;
  StatusOr<std::shared_ptr<const SubscriptionRow>> FindSubscription(const std::string& name) const;
  uint64_t TakeUid(storage::WriteBatch* rows);
  std::string FreeSubscriptionName(std::string_view project) const;

  // Applies and appends `rows` (none: a mere answer); runs `answer` when nothing it shows is
  // pending.
  void Commit(storage::WriteBatch rows, Task answer);
  void OnDurable(uint64_t seq, const std::vector<CatalogChange>& changes);
  StatusOr<std::vector<CatalogChange>> Apply(const storage::WriteBatch& rows);
  StatusOr<CatalogChange> ApplyPut(std::string_view key, std::string_view value);
  CatalogChange ApplyDelete(std::string_view key);
  CatalogChange PutTopic(TopicRow row);
  CatalogChange PutSubscription(SubscriptionRow row);
  void MarkDirty();
  storage::WriteBatch TakeChanges();

  const CatalogEnvironment environment_;
  const std::shared_ptr<CatalogListener> listener_;
  SerialExecutor executor_;

  absl::flat_hash_map<TopicUid, TopicState> topics_;
  absl::btree_map<std::string, TopicUid> topic_names_;  // without the deleted ones
  absl::btree_map<std::string, std::shared_ptr<const SubscriptionRow>> subscriptions_;
  absl::flat_hash_map<SubscriptionUid, std::string> subscription_names_;
  uint64_t next_uid_ = 1;

  uint64_t seq_ = 0;
  uint64_t durable_seq_ = 0;
  std::deque<std::pair<uint64_t, Task>> waiting_;  // answers, by the seq they wait for

  storage::WriteBatch unsaved_;  // since the last checkpoint
  // Rows of shards that ended: removed twice, because a shard may answer a checkpoint that was
  // under way.
  storage::WriteBatch removals_;
  bool told_ = false;
};

}  // namespace millrace::pubsub
