// Topics and subscriptions as resources: what a caller may set, and what an answer shows
// (spec/pubsub 1.3, 1.4, 2.4).
//
// Pure functions. What is stored is normal: defaults filled in, output-only and input-only fields
// gone.
#pragma once

#include "base/status.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/subscription/subscription_shard.h"

namespace millrace::pubsub {

// Checks all settings and makes them normal. Names are checked too; a subscription's topic may be
// _deleted-topic_ if `update`.
Status NormalizeTopic(pb::Topic* topic);
Status NormalizeSubscription(pb::Subscription* subscription, bool update = false);

// `stored` with the masked fields of the request, normal again; or why not. Nothing is changed on
// an error.
StatusOr<pb::Topic> UpdatedTopic(const pb::Topic& stored, const pb::UpdateTopicRequest& request);
StatusOr<pb::Subscription> UpdatedSubscription(const pb::Subscription& stored,
                                               const pb::UpdateSubscriptionRequest& request);

// A normal subscription as an answer shows it.
pb::Subscription SubscriptionAnswer(const pb::Subscription& stored);
SubscriptionSettings SettingsOf(const pb::Subscription& stored);

}  // namespace millrace::pubsub
