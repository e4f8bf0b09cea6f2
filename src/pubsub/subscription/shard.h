// The subscription shard put together: commands come in here and go to the part whose duty they
// are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pubsub/subscription/ack_recorder.h"
#include "pubsub/subscription/ack_state.h"
#include "pubsub/subscription/delivery.h"
#include "pubsub/subscription/retention.h"
#include "pubsub/subscription/shard_context.h"
#include "pubsub/subscription/subscription_shard.h"
#include "pubsub/subscription/survey.h"

namespace millrace::pubsub {

// SubscriptionShard (see there) on one topic partition, in one process. Acks are applied when they
// come and recorded in the same turn; unary replies wait for the record. Leases, credit and figures
// are volatile.
class LocalSubscriptionShard final : public SubscriptionShard, private DeliveryListener {
 public:
  LocalSubscriptionShard(SubscriptionShardEnvironment environment, SubscriptionSettings settings,
                         uint64_t start_offset);
  // Right after construction.
  void SetSelf(const std::shared_ptr<LocalSubscriptionShard>& self);

  Status LoadRow(std::string_view key, std::string_view value) override;
  Status Replay(const storage::Record& record) override;
  void Start() override;
  void UpdateSettings(SubscriptionSettings settings) override;
  void End(Status status) override;

  std::shared_ptr<void> Pull(Broker::PullRequest request,
                             Reply<std::vector<Delivery>> reply) override;
  void Acknowledge(std::vector<std::string> ack_ids, StatusReply reply) override;
  void ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline,
                         StatusReply reply) override;
  std::unique_ptr<Stream> OpenStream(StreamOptions options,
                                     std::shared_ptr<StreamConsumer> consumer) override;

  void RegisterTimestampAttribute(const std::string& attribute, Duration band) override;
  void QueryBacklog(const std::optional<std::string>& attribute, Duration band,
                    Callback<void(StatusOr<BacklogInfo>)> done) override;
  void Expire(WallTime now) override;
  uint32_t CountNeeded(uint64_t first, uint32_t count) const override;
  Figures GetFigures() const override;
  void WriteCheckpoint(Callback<void(storage::WriteBatch)> done) override;

  // For streams (subscription_stream.cc), on the shard's executor.
  Deliverer& deliverer() { return deliverer_; }
  void AcknowledgeRanges(const std::vector<AckRange>& ranges);
  const ShardContext& context() const { return context_; }

 private:
  void OnVanished(uint64_t first, uint64_t count) override;
  void OnRead(const std::vector<StoredMessage>& messages) override;

  void ApplyAndRecord(const AckedRun& run);
  storage::WriteBatch MakeCheckpoint();

  ShardContext context_;
  SubscriptionSettings settings_;
  AckState state_;
  AckRecorder recorder_;
  Deliverer deliverer_;
  mutable Survey survey_;
  Retention retention_;
  Status ended_;                  // OK while it lives
  uint64_t rows_from_block_ = 0;  // the Store has no block row below
};

// A subscriber's handle on its session. Thread-safe: everything is posted to the shard.
std::unique_ptr<Stream> MakeSubscriptionStream(std::shared_ptr<LocalSubscriptionShard> shard,
                                               SessionId session);

}  // namespace millrace::pubsub
