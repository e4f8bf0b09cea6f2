#include "pubsub/broker/local_broker.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "base/log.h"
#include "pubsub/broker/refuse.h"
#include "pubsub/catalog/catalog_rows.h"
#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kAckIdKeyBytes = 16;

struct Boot {
  uint64_t generation = 0;
  std::string ack_id_key;
};

std::string MakeKey(uint64_t seed) {
  std::string key;
  while (key.size() < kAckIdKeyBytes) {  // splitmix64
    seed += 0x9e3779b97f4a7c15ull;
    uint64_t mixed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    storage::PutFixed64(key, mixed ^ mixed >> 31);
  }
  return key;
}

// Counts this start, durably before anything else: no lease epoch of an earlier one is used again.
// The row stands in the store alone, not in the log, because it must be durable before the first
// shard starts.
StatusOr<Boot> CountBoot(storage::Store& store, uint64_t seed) {
  Boot boot;
  MR_ASSIGN_OR_RETURN(auto row, store.Get(storage::Table::kBroker, kCatalogBootKey, nullptr));
  if (row) {
    storage::ByteReader reader(*row);
    boot.generation = reader.Varint();
    boot.ack_id_key = std::string(reader.String());
    if (!reader.ok() || boot.ack_id_key.size() != kAckIdKeyBytes) {
      return DataLoss("The broker's row of starts and keys cannot be read.");
    }
  } else {
    boot.ack_id_key = MakeKey(seed);
  }
  ++boot.generation;
  std::string value;
  storage::PutVarint(value, boot.generation);
  storage::PutString(value, boot.ack_id_key);
  storage::WriteBatch batch;
  batch.Put(storage::Table::kBroker, kCatalogBootKey, value);
  MR_RETURN_IF_ERROR(store.Write(batch));
  MR_RETURN_IF_ERROR(store.Flush());
  return boot;
}

// Asked on storage's thread; counted where the catalogue lives.
class BrokerLiveness : public storage::Liveness {
 public:
  BrokerLiveness(std::shared_ptr<CatalogShard> catalog, std::shared_ptr<ShardRegistry> registry)
      : catalog_(std::move(catalog)), registry_(std::move(registry)) {}

  void CountLive(std::vector<storage::TopicEntry> entries,
                 Callback<void(std::vector<uint32_t>)> done) override {
    catalog_->executor().Post([catalog = catalog_, registry = registry_,
                               entries = std::move(entries), done = std::move(done)]() mutable {
      std::shared_ptr<Executor> executor(catalog, &catalog->executor());
      registry->CountLive(std::move(entries), std::move(executor), std::move(done));
    });
  }

 private:
  const std::shared_ptr<CatalogShard> catalog_;
  const std::shared_ptr<ShardRegistry> registry_;
};

CatalogEnvironment CatalogEnvironmentOf(const BrokerEnvironment& environment) {
  return {environment.pool, environment.storage->log.get(), environment.storage->checkpointer.get(),
          environment.random_seed};
}

}  // namespace

StatusOr<std::unique_ptr<Broker>> Broker::Load(BrokerEnvironment environment,
                                               BrokerOptions options) {
  if (options.partitions_per_topic != 1) {
    return InvalidArgument(
        fmt::format("partitions_per_topic is {}: this broker runs topics of one partition.",
                    options.partitions_per_topic));
  }
  MR_ASSIGN_OR_RETURN(Boot boot, CountBoot(*environment.storage->store, environment.random_seed));
  auto registry = std::make_shared<ShardRegistry>(
      RegistryEnvironment{environment, boot.ack_id_key, boot.generation});
  auto broker =
      std::make_unique<LocalBroker>(environment, options, std::move(registry), boot.ack_id_key);
  MR_RETURN_IF_ERROR(broker->LoadStore());
  return std::unique_ptr<Broker>(std::move(broker));
}

LocalBroker::LocalBroker(BrokerEnvironment environment, BrokerOptions options,
                         std::shared_ptr<ShardRegistry> registry, std::string ack_id_key)
    : environment_(environment),
      registry_(std::move(registry)),
      ack_id_key_(std::move(ack_id_key)),
      catalog_(std::make_shared<CatalogShard>(CatalogEnvironmentOf(environment), registry_)),
      housekeeping_(std::make_shared<Housekeeping>(environment, options.housekeeping_interval,
                                                   catalog_, registry_)) {}

LocalBroker::~LocalBroker() { stopped_ = true; }

Status LocalBroker::LoadStore() {
  storage::Store& store = *environment_.storage->store;
  // Numbers, then topics, then the subscriptions that stand on them.
  for (std::string prefix : {"catalog/n/", "catalog/t/", "catalog/s/"}) {
    auto rows = store.NewIterator(storage::Table::kBroker, prefix, PrefixEnd(prefix), nullptr);
    for (rows->Seek(prefix); rows->Valid(); rows->Next()) {
      MR_RETURN_IF_ERROR(catalog_->LoadRow(rows->key(), rows->value()));
    }
    MR_RETURN_IF_ERROR(rows->status());
  }
  return registry_->LoadRows(store);
}

Status LocalBroker::Replay(const storage::Record& record) {
  if (record.shard.kind == storage::ShardKind::kCatalog) return catalog_->Replay(record);
  return registry_->Replay(record);
}

void LocalBroker::Start() {
  registry_->Start();
  catalog_->Start();
  environment_.storage->log->SetLiveness(std::make_shared<BrokerLiveness>(catalog_, registry_));
  housekeeping_->Start();
}

void LocalBroker::Stop() {
  if (stopped_.exchange(true)) return;
  housekeeping_->Stop();
  auto end_all = [this](const Status& status) {
    std::promise<void> ended;
    catalog_->executor().Post([&] { registry_->EndAll(status, [&ended] { ended.set_value(); }); });
    ended.get_future().wait();
  };
  end_all(Unavailable("The server is shutting down."));
  // Replies that wait for a commit: once the log has called everything appended so far, all of them
  // are posted; then they run.
  std::promise<void> committed;
  environment_.storage->log->Append({}, [&committed] { committed.set_value(); });
  committed.get_future().wait();
  end_all(OkStatus());
}

Status LocalBroker::MayCall() const {
  return stopped_ ? Unavailable("The server is shutting down.") : OkStatus();
}

// --- Administration: all of it is the catalogue's ---

template <typename Request, typename R>
void LocalBroker::OnCatalog(void (CatalogShard::*call)(Request, R), std::decay_t<Request> request,
                            R reply) {
  if (Status status = MayCall(); !status.ok())
    return Refuse(*environment_.pool, std::move(reply), status);
  catalog_->executor().Post(
      [catalog = catalog_, call, request = std::move(request), reply = std::move(reply)]() mutable {
        ((*catalog).*call)(std::move(request), std::move(reply));
      });
}

void LocalBroker::CreateTopic(const pb::Topic& topic, Reply<pb::Topic> reply) {
  OnCatalog(&CatalogShard::CreateTopic, topic, std::move(reply));
}

void LocalBroker::GetTopic(const std::string& name, Reply<pb::Topic> reply) {
  OnCatalog(&CatalogShard::GetTopic, name, std::move(reply));
}

void LocalBroker::UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply) {
  OnCatalog(&CatalogShard::UpdateTopic, request, std::move(reply));
}

void LocalBroker::DeleteTopic(const std::string& name, StatusReply reply) {
  OnCatalog(&CatalogShard::DeleteTopic, name, std::move(reply));
}

void LocalBroker::ListTopics(const pb::ListTopicsRequest& request,
                             Reply<pb::ListTopicsResponse> reply) {
  OnCatalog(&CatalogShard::ListTopics, request, std::move(reply));
}

void LocalBroker::ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest& request,
                                         Reply<pb::ListTopicSubscriptionsResponse> reply) {
  OnCatalog(&CatalogShard::ListTopicSubscriptions, request, std::move(reply));
}

void LocalBroker::CreateSubscription(const pb::Subscription& subscription,
                                     Reply<pb::Subscription> reply) {
  OnCatalog(&CatalogShard::CreateSubscription, subscription, std::move(reply));
}

void LocalBroker::GetSubscription(const std::string& name, Reply<pb::Subscription> reply) {
  OnCatalog(&CatalogShard::GetSubscription, name, std::move(reply));
}

void LocalBroker::UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                                     Reply<pb::Subscription> reply) {
  OnCatalog(&CatalogShard::UpdateSubscription, request, std::move(reply));
}

void LocalBroker::DeleteSubscription(const std::string& name, StatusReply reply) {
  OnCatalog(&CatalogShard::DeleteSubscription, name, std::move(reply));
}

void LocalBroker::ListSubscriptions(const pb::ListSubscriptionsRequest& request,
                                    Reply<pb::ListSubscriptionsResponse> reply) {
  OnCatalog(&CatalogShard::ListSubscriptions, request, std::move(reply));
}

}  // namespace millrace::pubsub
