#include "pubsub/catalog/resource_settings.h"

#include <fmt/format.h>

#include "pubsub/catalog/field_checks.h"
#include "pubsub/catalog/names.h"
#include "pubsub/catalog/update_mask.h"

namespace millrace::pubsub {
namespace {

using google::protobuf::Message;
using ProtoDuration = google::protobuf::Duration;

constexpr int32_t kAckDeadlineDefault = 10, kAckDeadlineMin = 10, kAckDeadlineMax = 600;
constexpr int64_t kDay = 24 * 3600;
constexpr int64_t kRetentionDefault = 7 * kDay, kRetentionMin = 600, kRetentionMax = 31 * kDay;
constexpr int64_t kExpirationDefault = 31 * kDay, kExpirationMin = kDay;

ProtoDuration Seconds(int64_t seconds) {
  ProtoDuration out;
  out.set_seconds(seconds);
  return out;
}

// A message with nothing in it is the default: unset it. With something in it, it is refused.
Status RequireDefault(std::string_view resource, std::string_view field,
                      Message* resource_message) {
  const auto* descriptor = resource_message->GetDescriptor()->FindFieldByName(std::string(field));
  const auto* reflection = resource_message->GetReflection();
  bool set;
  if (descriptor->is_repeated()) {
    set = reflection->FieldSize(*resource_message, descriptor) > 0;
  } else if (descriptor->message_type() != nullptr) {
    set = reflection->HasField(*resource_message, descriptor) &&
          reflection->GetMessage(*resource_message, descriptor).ByteSizeLong() > 0;
  } else {
    set = reflection->HasField(*resource_message, descriptor);
  }
  if (set) return UnsupportedField(resource, field);
  reflection->ClearField(resource_message, descriptor);
  return OkStatus();
}

Status CheckStoragePolicy(pb::Topic* topic) {
  if (!topic->has_message_storage_policy()) return OkStatus();
  const pb::MessageStoragePolicy& policy = topic->message_storage_policy();
  if (policy.ByteSizeLong() == 0) {
    topic->clear_message_storage_policy();
    return OkStatus();
  }
  if (policy.allowed_persistence_regions().empty()) {
    return InvalidArgumentNamed("message_storage_policy.allowed_persistence_regions");
  }
  for (const std::string& region : policy.allowed_persistence_regions()) {
    if (region.empty())
      return InvalidArgumentNamed("message_storage_policy.allowed_persistence_regions");
  }
  return OkStatus();
}

Status NormalizeAckDeadline(pb::Subscription* subscription) {
  int32_t deadline = subscription->ack_deadline_seconds();
  if (deadline == 0) {
    subscription->set_ack_deadline_seconds(kAckDeadlineDefault);
  } else if (deadline < kAckDeadlineMin || deadline > kAckDeadlineMax) {
    return InvalidArgument(
        fmt::format("Invalid ack deadline given (ack_deadline={}). The ack deadline must be "
                    "between {} and {} seconds.",
                    deadline, kAckDeadlineMin, kAckDeadlineMax));
  }
  return OkStatus();
}

Status NormalizeRetentionAndExpiration(pb::Subscription* subscription) {
  if (!subscription->has_expiration_policy()) {
    *subscription->mutable_expiration_policy()->mutable_ttl() = Seconds(kExpirationDefault);
  } else if (subscription->expiration_policy().has_ttl()) {
    MR_RETURN_IF_ERROR(CheckDurationMin(
        "expiration duration", subscription->expiration_policy().ttl(), Seconds(kExpirationMin)));
  }
  if (!subscription->has_message_retention_duration()) {
    int64_t retention = kRetentionDefault;
    const pb::ExpirationPolicy& expiration = subscription->expiration_policy();
    if (expiration.has_ttl() && expiration.ttl().seconds() < retention) {
      *subscription->mutable_message_retention_duration() = expiration.ttl();
    } else {
      *subscription->mutable_message_retention_duration() = Seconds(retention);
    }
  }
  return CheckDurationRange("message retention duration",
                            subscription->message_retention_duration(), Seconds(kRetentionMin),
                            Seconds(kRetentionMax));
}

}  // namespace

Status NormalizeTopic(pb::Topic* topic) {
  MR_RETURN_IF_ERROR(CheckResourceName(topic->name(), ResourceKind::kTopic));
  MR_RETURN_IF_ERROR(CheckLabels(topic->labels()));
  MR_RETURN_IF_ERROR(CheckStoragePolicy(topic));
  for (std::string_view field : {"kms_key_name", "schema_settings", "message_retention_duration",
                                 "ingestion_data_source_settings", "message_transforms"}) {
    MR_RETURN_IF_ERROR(RequireDefault("Topic", field, topic));
  }
  topic->clear_satisfies_pzs();
  topic->clear_state();
  topic->clear_tags();
  topic->DiscardUnknownFields();
  return OkStatus();
}

Status NormalizeSubscription(pb::Subscription* subscription, bool update) {
  MR_RETURN_IF_ERROR(CheckResourceName(subscription->name(), ResourceKind::kSubscription));
  if (!update || subscription->topic() != kDeletedTopic) {
    MR_RETURN_IF_ERROR(CheckResourceName(subscription->topic(), ResourceKind::kTopic));
  }
  MR_RETURN_IF_ERROR(NormalizeAckDeadline(subscription));
  MR_RETURN_IF_ERROR(NormalizeRetentionAndExpiration(subscription));
  MR_RETURN_IF_ERROR(CheckLabels(subscription->labels()));
  for (std::string_view field :
       {"push_config", "bigquery_config", "cloud_storage_config", "bigtable_config",
        "retain_acked_messages", "enable_message_ordering", "filter", "dead_letter_policy",
        "retry_policy", "enable_exactly_once_delivery", "message_transforms"}) {
    MR_RETURN_IF_ERROR(RequireDefault("Subscription", field, subscription));
  }
  subscription->clear_detached();
  subscription->clear_topic_message_retention_duration();
  subscription->clear_state();
  subscription->clear_analytics_hub_subscription_info();
  subscription->clear_tags();
  subscription->DiscardUnknownFields();
  return OkStatus();
}

StatusOr<pb::Topic> UpdatedTopic(const pb::Topic& stored, const pb::UpdateTopicRequest& request) {
  static const MaskRules kRules{
      "UpdateTopicRequest", "Topic", {"name", "satisfies_pzs", "state", "tags"}};
  pb::Topic updated = stored;
  MR_RETURN_IF_ERROR(ApplyUpdateMask(kRules, request.update_mask(), request.topic(), &updated));
  MR_RETURN_IF_ERROR(NormalizeTopic(&updated));
  return updated;
}

StatusOr<pb::Subscription> UpdatedSubscription(const pb::Subscription& stored,
                                               const pb::UpdateSubscriptionRequest& request) {
  static const MaskRules kRules{
      "UpdateSubscriptionRequest",
      "Subscription",
      {"name", "topic", "enable_message_ordering", "filter", "detached",
       "topic_message_retention_duration", "state", "analytics_hub_subscription_info", "tags"}};
  pb::Subscription updated = stored;
  MR_RETURN_IF_ERROR(
      ApplyUpdateMask(kRules, request.update_mask(), request.subscription(), &updated));
  MR_RETURN_IF_ERROR(NormalizeSubscription(&updated, true));
  return updated;
}

pb::Subscription SubscriptionAnswer(const pb::Subscription& stored) {
  pb::Subscription answer = stored;
  answer.mutable_push_config();
  answer.set_state(pb::Subscription::ACTIVE);
  return answer;
}

SubscriptionSettings SettingsOf(const pb::Subscription& stored) {
  SubscriptionSettings settings;
  settings.ack_deadline = std::chrono::seconds(stored.ack_deadline_seconds());
  settings.retention = ToDuration(stored.message_retention_duration());
  return settings;
}

}  // namespace millrace::pubsub
