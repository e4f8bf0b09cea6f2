// Figures of topics and subscriptions as Prometheus text.
#pragma once

#include <string>

#include "base/task.h"
#include "pubsub/broker/shard_registry.h"
#include "storage/commit_log.h"

namespace millrace::pubsub {

// On the catalogue's executor `catalog`; asks every subscription on its own executor, answers on
// `catalog`.
void CollectMetrics(const ShardRegistry& registry, const storage::LogStats& log, WallTime now,
                    Executor& catalog, Callback<void(std::string)> reply);

}  // namespace millrace::pubsub
