#include "pubsub/broker/housekeeping.h"

#include <utility>

namespace millrace::pubsub {

Housekeeping::Housekeeping(BrokerEnvironment environment, Duration interval,
                           std::shared_ptr<CatalogShard> catalog,
                           std::shared_ptr<ShardRegistry> registry)
    : environment_(environment),
      interval_(interval),
      catalog_(std::move(catalog)),
      registry_(std::move(registry)) {}

void Housekeeping::Start() {
  catalog_->executor().Post([self = shared_from_this()] { self->Schedule(); });
}

void Housekeeping::Stop() {
  catalog_->executor().Post([self = shared_from_this()] {
    self->stopped_ = true;
    self->environment_.timers->Cancel(self->timer_);
  });
}

// The timer posts to the pool, which outlives everything, and from there to the catalogue while
// that still exists.
void Housekeeping::Schedule() {
  if (stopped_) return;
  timer_ = environment_.timers->At(environment_.clock->SteadyNow() + interval_, *environment_.pool,
                                   [weak = weak_from_this()] {
                                     auto self = weak.lock();
                                     if (!self) return;
                                     SerialExecutor& executor = self->catalog_->executor();
                                     executor.Post([self = std::move(self)] { self->Run(); });
                                   });
}

void Housekeeping::Run() {
  if (stopped_) return;
  registry_->KeepHouse(environment_.clock->WallNow(), environment_.clock->SteadyNow());
  environment_.storage->log->MayHaveDied();
  environment_.storage->checkpointer->MayRun();
  Schedule();
}

}  // namespace millrace::pubsub
