// Publishing and consuming.
#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "pubsub/broker/broker_metrics.h"
#include "pubsub/broker/local_broker.h"
#include "pubsub/broker/refuse.h"
#include "pubsub/broker/subscription_ends.h"
#include "pubsub/catalog/field_checks.h"
#include "pubsub/catalog/names.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kAckRequestBytesMax = 524'288;
constexpr int64_t kStreamDeadlineMin = 10, kDeadlineMax = 600;

Status CheckAckDeadline(int64_t seconds, int64_t min) {
  if (seconds >= min && seconds <= kDeadlineMax) return OkStatus();
  return InvalidArgument(
      fmt::format("Invalid ack deadline given (ack_deadline={}). The ack deadline must be between "
                  "{} and {} seconds.",
                  seconds, min, kDeadlineMax));
}

}  // namespace

void LocalBroker::Publish(SharedBytes request, Reply<PublishResult> reply) {
  auto refuse = [&](Status status) {
    Refuse(*environment_.pool, std::move(reply), std::move(status));
  };
  if (Status status = MayCall(); !status.ok()) return refuse(status);
  auto scanned = ScanPublishRequest(request.view());
  if (!scanned.ok()) return refuse(scanned.status());
  std::shared_ptr<TopicShard> topic = registry_->FindTopic(scanned->topic);
  if (!topic) {
    Status status = CheckResourceName(scanned->topic, ResourceKind::kTopic);
    return refuse(status.ok() ? ResourceNotFound(scanned->topic) : status);
  }
  topic->Publish(*std::move(scanned), std::move(reply));
}

void LocalBroker::PublishOnce(const std::string& topic, const std::string& producer,
                              uint64_t sequence, std::vector<SharedBytes> messages,
                              StatusReply reply) {
  auto refuse = [&](Status status) {
    Refuse(*environment_.pool, std::move(reply), std::move(status));
  };
  if (Status status = MayCall(); !status.ok()) return refuse(status);
  if (producer.empty()) return refuse(InvalidArgumentNamed("producer"));
  auto scanned = ScanMessages(messages);
  if (!scanned.ok()) return refuse(scanned.status());
  std::shared_ptr<TopicShard> shard = registry_->FindTopic(topic);
  if (!shard) {
    Status status = CheckResourceName(topic, ResourceKind::kTopic);
    return refuse(status.ok() ? ResourceNotFound(topic) : status);
  }
  shard->PublishOnce(producer, sequence, *std::move(scanned), std::move(reply));
}

StatusOr<std::shared_ptr<SubscriptionHandle>> LocalBroker::FindSubscription(
    const std::string& name) const {
  MR_RETURN_IF_ERROR(MayCall());
  std::shared_ptr<SubscriptionHandle> handle = registry_->FindSubscription(name);
  if (handle) return handle;
  MR_RETURN_IF_ERROR(CheckResourceName(name, ResourceKind::kSubscription));
  return ResourceNotFound(name);
}

std::shared_ptr<void> LocalBroker::Pull(PullRequest request, Reply<std::vector<Delivery>> reply) {
  auto handle = FindSubscription(request.subscription);
  Status status = handle.status();
  if (status.ok() && request.max_messages <= 0) status = InvalidArgumentNamed("max_messages");
  if (!status.ok()) {
    Refuse(*environment_.pool, std::move(reply), status);
    return nullptr;
  }
  return StartPull(*std::move(handle), std::move(request), std::move(reply));
}

// Well-formed ids that are not of this subscription's incarnation name nothing any more: they are
// left out and succeed.
StatusOr<std::shared_ptr<SubscriptionHandle>> LocalBroker::CheckAckIds(
    const std::string& subscription, std::vector<std::string>* ack_ids) const {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<SubscriptionHandle> handle, FindSubscription(subscription));
  if (ack_ids->empty()) return InvalidArgument("You have not specified an ack ID in the request.");
  size_t bytes = 0, kept = 0;
  for (size_t i = 0; i < ack_ids->size(); ++i) {
    std::string& text = (*ack_ids)[i];
    bytes += text.size();
    AckId id;
    if (!ParseAckId(text, ack_id_key_, &id)) {
      return InvalidArgument(
          fmt::format("You have passed an invalid ack ID to the service (ack_id={}).", text));
    }
    if (id.subscription != handle->uid) continue;
    if (kept != i) (*ack_ids)[kept] = std::move(text);
    ++kept;
  }
  ack_ids->resize(kept);
  if (bytes > kAckRequestBytesMax) {
    return InvalidArgument(
        fmt::format("The value for request_size is too large. You passed {} in the request, but "
                    "the maximum value is {}.",
                    bytes, kAckRequestBytesMax));
  }
  return handle;
}

void LocalBroker::Acknowledge(const std::string& subscription, std::vector<std::string> ack_ids,
                              StatusReply reply) {
  auto handle = CheckAckIds(subscription, &ack_ids);
  if (!handle.ok()) return Refuse(*environment_.pool, std::move(reply), handle.status());
  SerialExecutor& executor = (*handle)->executor;
  executor.Post([handle = *std::move(handle), ack_ids = std::move(ack_ids),
                 reply = std::move(reply)]() mutable {
    handle->shard->Acknowledge(std::move(ack_ids), std::move(reply));
  });
}

void LocalBroker::ModifyAckDeadline(const std::string& subscription,
                                    std::vector<std::string> ack_ids, int32_t seconds,
                                    StatusReply reply) {
  auto handle = CheckAckIds(subscription, &ack_ids);
  Status status = handle.ok() ? CheckAckDeadline(seconds, 0) : handle.status();
  if (!status.ok()) return Refuse(*environment_.pool, std::move(reply), status);
  SerialExecutor& executor = (*handle)->executor;
  executor.Post([handle = *std::move(handle), ack_ids = std::move(ack_ids), seconds,
                 reply = std::move(reply)]() mutable {
    handle->shard->ModifyAckDeadline(std::move(ack_ids), std::chrono::seconds(seconds),
                                     std::move(reply));
  });
}

void LocalBroker::OpenStream(StreamOptions options, std::shared_ptr<StreamConsumer> consumer,
                             Reply<std::unique_ptr<Stream>> reply) {
  auto handle = FindSubscription(options.subscription);
  Status status = handle.status();
  if (status.ok())
    status = CheckAckDeadline(options.ack_deadline / std::chrono::seconds(1), kStreamDeadlineMin);
  if (!status.ok()) return Refuse(*environment_.pool, std::move(reply), status);
  StartStream(*std::move(handle), std::move(options), std::move(consumer), std::move(reply));
}

void LocalBroker::WatchBacklog(const std::string& subscription,
                               std::optional<std::string> timestamp_attribute, Duration band,
                               Reply<std::unique_ptr<BacklogWatch>> reply) {
  auto handle = FindSubscription(subscription);
  if (!handle.ok()) return Refuse(*environment_.pool, std::move(reply), handle.status());
  StartWatch(*std::move(handle), std::move(timestamp_attribute), band, std::move(reply));
}

void LocalBroker::Metrics(Callback<void(std::string)> reply) {
  catalog_->executor().Post([catalog = catalog_, registry = registry_,
                             storage = environment_.storage, clock = environment_.clock,
                             reply = std::move(reply)]() mutable {
    CollectMetrics(*registry, storage->log->Stats(), clock->WallNow(), catalog->executor(),
                   std::move(reply));
  });
}

}  // namespace millrace::pubsub
