// What the parts of a subscription shard share: who they are, and the world they were given.
#pragma once

#include <memory>

#include "pubsub/subscription/ack_id.h"
#include "pubsub/subscription/subscription_shard.h"

namespace millrace::pubsub {

// Made once and never changed; owned by the shard, outlives its parts.
struct ShardContext {
  SubscriptionShardEnvironment environment;
  SipKey ack_id_key;
  uint32_t partition = 0;
  // The shard. Tasks that come back later (timers, reads, growth) hold this and do nothing when it
  // is gone.
  std::weak_ptr<SubscriptionShard> self;

  SerialExecutor& executor() const { return *environment.executor; }
  TopicReader& topic() const { return *environment.topic; }
  SteadyTime SteadyNow() const { return environment.clock->SteadyNow(); }
  // `task` on the shard's executor, unless the shard has gone by then.
  template <typename F>
  auto WhileAlive(F task) const {
    return [self = self, task = std::move(task)](auto&&... args) mutable {
      if (auto alive = self.lock()) task(std::forward<decltype(args)>(args)...);
    };
  }
};

}  // namespace millrace::pubsub
