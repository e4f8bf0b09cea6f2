// What happens by the clock alone: retention, and telling storage to look for what died.
#pragma once

#include <memory>

#include "pubsub/broker/shard_registry.h"
#include "pubsub/catalog/catalog_shard.h"

namespace millrace::pubsub {

// Runs on the catalogue's executor, at every interval from Start to Stop. Owned by the broker; its
// timer holds it weakly.
class Housekeeping : public std::enable_shared_from_this<Housekeeping> {
 public:
  Housekeeping(BrokerEnvironment environment, Duration interval,
               std::shared_ptr<CatalogShard> catalog, std::shared_ptr<ShardRegistry> registry);

  // Any thread.
  void Start();
  void Stop();

 private:
  void Schedule();
  void Run();

  const BrokerEnvironment environment_;
  const Duration interval_;
  const std::shared_ptr<CatalogShard> catalog_;
  const std::shared_ptr<ShardRegistry> registry_;
  TimerId timer_ = 0;
  bool stopped_ = false;
};

}  // namespace millrace::pubsub
