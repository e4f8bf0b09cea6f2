// The native Pub/Sub source over the broker of the same process (DESIGN 6).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/timer.h"
#include "connectors/pubsub/settings.h"
#include "engine/source.h"
#include "pubsub/broker.h"

namespace millrace::connectors::pubsub {

struct SourceEnvironment {
  millrace::pubsub::Broker* broker = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;
};

// Guarantees: a message is acked only when the engine says so; its lease is extended until then,
// however long that is. The watermark never passes an unacked message. `own_subscription`: for a
// topic, the name of the subscription that is made on it (kept over restarts of the job, deleted by
// whoever ends the job).
std::unique_ptr<engine::Source> MakePubSubSource(ReadSettings settings,
                                                 std::string own_subscription,
                                                 SourceEnvironment environment,
                                                 std::function<void(Status warning)> report);

// Event time before which nothing more can come (DESIGN 6).
int64_t SourceWatermark(const millrace::pubsub::BacklogInfo& backlog, const ReadSettings& settings);

// What is wrong with a subscription as a source: warnings for settings that harm (dataflow 10), an
// error for a push subscription.
struct SubscriptionCheck {
  Status error;
  std::vector<std::string> warnings;
};
SubscriptionCheck CheckSubscription(const millrace::pubsub::pb::Subscription& subscription);

}  // namespace millrace::connectors::pubsub
