#include "pubsub/broker/subscription_ends.h"

#include <utility>

namespace millrace::pubsub {
namespace {

// A pull under way. Lives on the subscription's executor; the caller's ticket reaches it by posting
// there.
struct PullSlot {
  bool cancelled = false;
  std::shared_ptr<void> pull;
};

class PullTicket {
 public:
  PullTicket(std::shared_ptr<SubscriptionHandle> handle, std::shared_ptr<PullSlot> slot)
      : handle_(std::move(handle)), slot_(std::move(slot)) {}
  ~PullTicket() {
    handle_->executor.Post([handle = handle_, slot = slot_] {
      slot->cancelled = true;
      slot->pull.reset();
    });
  }

 private:
  const std::shared_ptr<SubscriptionHandle> handle_;
  const std::shared_ptr<PullSlot> slot_;
};

class HeldStream : public Stream {
 public:
  HeldStream(std::shared_ptr<SubscriptionHandle> handle, std::unique_ptr<Stream> stream)
      : handle_(std::move(handle)), stream_(std::move(stream)) {}

  void Demand(size_t max_bytes) override { stream_->Demand(max_bytes); }
  void SetAckDeadline(Duration deadline) override { stream_->SetAckDeadline(deadline); }
  void Acknowledge(std::vector<std::string> ack_ids) override {
    stream_->Acknowledge(std::move(ack_ids));
  }
  void ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline) override {
    stream_->ModifyAckDeadline(std::move(ack_ids), deadline);
  }
  void Close() override { stream_->Close(); }

 private:
  const std::shared_ptr<SubscriptionHandle>
      handle_;  // outlives the stream, which posts to its executor
  const std::unique_ptr<Stream> stream_;
};

class HeldWatch : public BacklogWatch {
 public:
  HeldWatch(std::shared_ptr<SubscriptionHandle> handle, std::optional<std::string> attribute,
            Duration band)
      : handle_(std::move(handle)), attribute_(std::move(attribute)), band_(band) {}

  void Query(Callback<void(StatusOr<BacklogInfo>)> done) override {
    handle_->executor.Post(
        [handle = handle_, attribute = attribute_, band = band_, done = std::move(done)]() mutable {
          handle->shard->QueryBacklog(attribute, band, std::move(done));
        });
  }

 private:
  const std::shared_ptr<SubscriptionHandle> handle_;
  const std::optional<std::string> attribute_;
  const Duration band_;
};

}  // namespace

std::shared_ptr<void> StartPull(std::shared_ptr<SubscriptionHandle> handle,
                                Broker::PullRequest request, Reply<std::vector<Delivery>> reply) {
  auto slot = std::make_shared<PullSlot>();
  handle->executor.Post(
      [handle, slot, request = std::move(request), reply = std::move(reply)]() mutable {
        if (slot->cancelled) return;
        slot->pull = handle->shard->Pull(std::move(request), std::move(reply));
      });
  return std::make_shared<PullTicket>(std::move(handle), std::move(slot));
}

void StartStream(std::shared_ptr<SubscriptionHandle> handle, StreamOptions options,
                 std::shared_ptr<StreamConsumer> consumer, Reply<std::unique_ptr<Stream>> reply) {
  SerialExecutor& executor = handle->executor;
  executor.Post([handle = std::move(handle), options = std::move(options),
                 consumer = std::move(consumer), reply = std::move(reply)]() mutable {
    std::unique_ptr<Stream> stream =
        handle->shard->OpenStream(std::move(options), std::move(consumer));
    reply(std::unique_ptr<Stream>(
        std::make_unique<HeldStream>(std::move(handle), std::move(stream))));
  });
}

void StartWatch(std::shared_ptr<SubscriptionHandle> handle,
                std::optional<std::string> timestamp_attribute, Duration band,
                Reply<std::unique_ptr<BacklogWatch>> reply) {
  SerialExecutor& executor = handle->executor;
  executor.Post([handle = std::move(handle), attribute = std::move(timestamp_attribute), band,
                 reply = std::move(reply)]() mutable {
    if (attribute) handle->shard->RegisterTimestampAttribute(*attribute, band);
    reply(std::unique_ptr<BacklogWatch>(
        std::make_unique<HeldWatch>(std::move(handle), std::move(attribute), band)));
  });
}

}  // namespace millrace::pubsub
