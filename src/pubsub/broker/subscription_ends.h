// What callers hold of a subscription: pulls under way, streams, watches. Each keeps the
// subscription's executor alive.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pubsub/broker/shard_registry.h"

namespace millrace::pubsub {

// Dropping the answer cancels; the reply is then given only if it was on its way already.
std::shared_ptr<void> StartPull(std::shared_ptr<SubscriptionHandle> handle,
                                Broker::PullRequest request, Reply<std::vector<Delivery>> reply);

void StartStream(std::shared_ptr<SubscriptionHandle> handle, StreamOptions options,
                 std::shared_ptr<StreamConsumer> consumer, Reply<std::unique_ptr<Stream>> reply);

void StartWatch(std::shared_ptr<SubscriptionHandle> handle,
                std::optional<std::string> timestamp_attribute, Duration band,
                Reply<std::unique_ptr<BacklogWatch>> reply);

}  // namespace millrace::pubsub
