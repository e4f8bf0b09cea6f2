#include "pubsub/broker/shard_registry.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pubsub/catalog/names.h"
#include "pubsub/catalog/resource_settings.h"

namespace millrace::pubsub {
namespace {

// All rows under `prefix` into `load`.
template <typename Load>
Status LoadPrefix(storage::Store& store, const std::string& prefix, Load load) {
  auto rows = store.NewIterator(storage::Table::kBroker, prefix, PrefixEnd(prefix));
  for (rows->Seek(prefix); rows->Valid(); rows->Next())
    MR_RETURN_IF_ERROR(load(rows->key(), rows->value()));
  return rows->status();
}

}  // namespace

ShardRegistry::ShardRegistry(RegistryEnvironment environment)
    : environment_(std::move(environment)) {}

// --- Applied: shards come into being ---

void ShardRegistry::OnApplied(const CatalogChange& change) {
  if (change.topic) {
    if (change.gone) {
      if (recovering_) DropTopic(*change.topic);
      return;
    }
    if (!topics_.contains(change.topic->uid)) AddTopic(*change.topic);
    if (recovering_) recovered_topics_[change.topic->uid] = *change.topic;
    return;
  }
  const SubscriptionRow& row = *change.subscription;
  if (change.gone) {
    if (recovering_) DropSubscription(row);
    return;
  }
  auto known = subscriptions_.find(row.uid);
  if (known == subscriptions_.end()) {
    AddSubscription(row);
  } else if (recovering_) {
    known->second->shard->UpdateSettings(SettingsOf(row.settings));
  }
}

void ShardRegistry::AddTopic(const TopicRow& row) {
  TopicShardEnvironment environment;
  environment.uid = row.uid;
  environment.name = row.settings.name();
  environment.pool = environment_.broker.pool;
  environment.clock = environment_.broker.clock;
  environment.blocking = environment_.broker.blocking;
  environment.log = environment_.broker.storage->log.get();
  environment.checkpointer = environment_.broker.storage->checkpointer.get();
  auto shard = std::make_shared<TopicShard>(std::move(environment));
  if (!recovering_) shard->Start();
  topics_[row.uid].shard = std::move(shard);
}

void ShardRegistry::AddSubscription(const SubscriptionRow& row) {
  TopicHolder& topic = topics_.at(row.topic);
  auto handle = std::make_shared<SubscriptionHandle>(row.uid, row.settings.name(), row.topic,
                                                     *environment_.broker.pool);
  SubscriptionShardEnvironment environment;
  environment.uid = row.uid;
  environment.name = handle->name;
  environment.executor = &handle->executor;
  environment.clock = environment_.broker.clock;
  environment.timers = environment_.broker.timers;
  environment.log = environment_.broker.storage->log.get();
  environment.checkpointer = environment_.broker.storage->checkpointer.get();
  environment.topic = topic.shard->reader();
  environment.ack_id_key = environment_.ack_id_key;
  environment.boot_generation = environment_.boot_generation;
  handle->shard =
      SubscriptionShard::Make(std::move(environment), SettingsOf(row.settings), row.start_offset);
  topic.subscriptions.push_back(handle);
  subscriptions_[row.uid] = handle;
  unstarted_[row.uid] = handle->name;
}

void ShardRegistry::DropTopic(const TopicRow& row) {
  topics_.erase(row.uid);
  recovered_topics_.erase(row.uid);
}

void ShardRegistry::DropSubscription(const SubscriptionRow& row) {
  auto found = subscriptions_.find(row.uid);
  if (found == subscriptions_.end()) return;
  std::shared_ptr<SubscriptionHandle> handle = std::move(found->second);
  subscriptions_.erase(found);
  unstarted_.erase(row.uid);
  if (auto topic = topics_.find(row.topic); topic != topics_.end())
    std::erase(topic->second.subscriptions, handle);
  // While recovering too: replayed records have made the shard known to the checkpointer.
  retired_.push_back({std::move(handle), environment_.broker.clock->SteadyNow()});
}

uint64_t ShardRegistry::Attach(TopicUid topic) { return topics_.at(topic).shard->Attach(); }

// --- Durable: the world sees it ---

void ShardRegistry::OnDurable(const CatalogChange& change) {
  change.topic ? TopicIsDurable(change) : SubscriptionIsDurable(change);
}

void ShardRegistry::TopicIsDurable(const CatalogChange& change) {
  auto found = topics_.find(change.topic->uid);
  if (found == topics_.end()) return;
  std::shared_ptr<TopicShard> shard = found->second.shard;
  const std::string& name = change.topic->settings.name();
  if (!change.gone && !change.topic->deleted) return topic_names_.Put(name, shard);
  topic_names_.Erase(name, shard);
  shard->End(ResourceNotFound(name));
  if (change.gone) topics_.erase(change.topic->uid);
  environment_.broker.storage->log->MayHaveDied();
}

void ShardRegistry::SubscriptionIsDurable(const CatalogChange& change) {
  const SubscriptionRow& row = *change.subscription;
  auto found = subscriptions_.find(row.uid);
  if (found == subscriptions_.end()) return;
  std::shared_ptr<SubscriptionHandle> handle = found->second;
  if (change.gone) {
    subscription_names_.Erase(handle->name, handle);
    if (auto topic = topics_.find(row.topic); topic != topics_.end()) topic->second.shard->Detach();
    DropSubscription(row);
    handle->executor.Post([handle] { handle->shard->End(ResourceNotFound(handle->name)); });
    environment_.broker.storage->log->MayHaveDied();
  } else if (unstarted_.erase(row.uid) > 0) {
    handle->executor.Post([handle] { handle->shard->Start(); });
    subscription_names_.Put(handle->name, handle);
  } else {
    handle->executor.Post(
        [handle, settings = SettingsOf(row.settings)] { handle->shard->UpdateSettings(settings); });
  }
}

// --- Recovery ---

Status ShardRegistry::LoadRows(storage::Store& store) {
  for (auto& [uid, topic] : topics_) {
    MR_RETURN_IF_ERROR(LoadPrefix(store, TopicShard::RowPrefix(uid), [&](auto key, auto value) {
      return topic.shard->LoadRow(key, value);
    }));
  }
  for (auto& [uid, handle] : subscriptions_) {
    MR_RETURN_IF_ERROR(
        LoadPrefix(store, SubscriptionShard::RowPrefix(uid),
                   [&](auto key, auto value) { return handle->shard->LoadRow(key, value); }));
  }
  return OkStatus();
}

Status ShardRegistry::Replay(const storage::Record& record) {
  if (record.shard.kind == storage::ShardKind::kTopic) {
    auto topic = topics_.find(TopicUid{record.shard.uid});
    return topic == topics_.end() ? OkStatus() : topic->second.shard->Replay(record);
  }
  auto subscription = subscriptions_.find(SubscriptionUid{record.shard.uid});
  return subscription == subscriptions_.end() ? OkStatus()
                                              : subscription->second->shard->Replay(record);
}

void ShardRegistry::Start() {
  recovering_ = false;
  unstarted_.clear();
  for (auto& [uid, topic] : topics_) {
    topic.shard->Start();
    for (size_t i = 0; i < topic.subscriptions.size(); ++i) topic.shard->Attach();
    const TopicRow& row = recovered_topics_.at(uid);
    if (row.deleted) {
      topic.shard->End(ResourceNotFound(row.settings.name()));
    } else {
      topic_names_.Put(row.settings.name(), topic.shard);
    }
  }
  recovered_topics_.clear();
  for (auto& [uid, handle] : subscriptions_) {
    handle->executor.Post([handle] { handle->shard->Start(); });
    subscription_names_.Put(handle->name, handle);
  }
}

// --- Liveness, housekeeping, end ---

namespace {

// An answer in the making; touched on the catalogue's executor only.
struct LiveCount {
  std::vector<uint32_t> live;
  size_t waiting = 1;
  Callback<void(std::vector<uint32_t>)> done;

  void Arrive() {
    if (--waiting == 0) done(std::move(live));
  }
};

struct Range {
  size_t index;
  uint64_t first;
  uint32_t count;
};

}  // namespace

void ShardRegistry::CountLive(std::vector<storage::TopicEntry> entries,
                              std::shared_ptr<Executor> catalog,
                              Callback<void(std::vector<uint32_t>)> done) {
  auto result = std::make_shared<LiveCount>();
  result->live.resize(entries.size());
  result->done = std::move(done);
  absl::flat_hash_map<TopicUid, std::shared_ptr<std::vector<Range>>> by_topic;
  for (size_t i = 0; i < entries.size(); ++i) {
    auto& ranges = by_topic[TopicUid{entries[i].partition.topic_uid}];
    if (!ranges) ranges = std::make_shared<std::vector<Range>>();
    ranges->push_back({i, entries[i].first_offset, entries[i].count});
  }
  for (const auto& [uid, ranges] : by_topic) {
    auto topic = topics_.find(uid);
    if (topic == topics_.end()) continue;
    for (const auto& handle : topic->second.subscriptions) {
      ++result->waiting;
      handle->executor.Post([handle, ranges = ranges, result, catalog] {
        std::vector<uint32_t> needed;
        needed.reserve(ranges->size());
        for (const Range& range : *ranges)
          needed.push_back(handle->shard->CountNeeded(range.first, range.count));
        catalog->Post([ranges, needed = std::move(needed), result] {
          for (size_t i = 0; i < needed.size(); ++i) {
            uint32_t& live = result->live[(*ranges)[i].index];
            live = std::max(live, needed[i]);
          }
          result->Arrive();
        });
      });
    }
  }
  result->Arrive();
}

void ShardRegistry::KeepHouse(WallTime wall, SteadyTime steady) {
  for (const auto& [uid, handle] : subscriptions_) {
    handle->executor.Post([handle = handle, wall] { handle->shard->Expire(wall); });
  }
  // Timers, reads and checkpoints know a shard's executor by address: it goes only when nobody
  // holds the shard any more.
  std::erase_if(retired_, [&](const Retired& retired) {
    return steady - retired.since >= kRetiredFor && retired.handle.use_count() == 1 &&
           retired.handle->shard.use_count() == 1;
  });
}

void ShardRegistry::EndAll(const Status& status, Task done) {
  struct Gate {
    ~Gate() { done(); }
    Task done;
  };
  auto gate = std::make_shared<Gate>();
  gate->done = std::move(done);
  for (const auto& [uid, topic] : topics_) {
    if (!status.ok()) topic.shard->End(status);
    topic.shard->executor().Post([gate] {});
  }
  for (const auto& [uid, handle] : subscriptions_) {
    handle->executor.Post([handle = handle, status, gate] {
      if (!status.ok()) handle->shard->End(status);
    });
  }
  for (const Retired& retired : retired_) retired.handle->executor.Post([gate] {});
}

std::vector<std::shared_ptr<TopicShard>> ShardRegistry::Topics() const {
  std::vector<std::shared_ptr<TopicShard>> out;
  for (const auto& [uid, topic] : topics_) out.push_back(topic.shard);
  return out;
}

std::vector<std::shared_ptr<SubscriptionHandle>> ShardRegistry::Subscriptions() const {
  std::vector<std::shared_ptr<SubscriptionHandle>> out;
  for (const auto& [uid, handle] : subscriptions_) out.push_back(handle);
  return out;
}

}  // namespace millrace::pubsub
