// The thread-safe end of a stream: parses ack ids where it is called, and posts the rest to the
// shard.
#include <atomic>

#include "pubsub/subscription/shard.h"

namespace millrace::pubsub {
namespace {

class SubscriptionStream final : public Stream {
 public:
  SubscriptionStream(std::shared_ptr<LocalSubscriptionShard> shard, SessionId session)
      : shard_(std::move(shard)), session_(session) {}
  ~SubscriptionStream() override { Close(); }

  void Demand(size_t max_bytes) override {
    Post([session = session_, max_bytes](LocalSubscriptionShard& shard) {
      shard.deliverer().Demand(session, max_bytes);
    });
  }

  void SetAckDeadline(Duration deadline) override {
    Post([session = session_, deadline](LocalSubscriptionShard& shard) {
      shard.deliverer().SetAckDeadline(session, deadline);
    });
  }

  void Acknowledge(std::vector<std::string> ack_ids) override {
    Post([ranges = Parse(ack_ids)](LocalSubscriptionShard& shard) {
      shard.AcknowledgeRanges(ranges);
    });
  }

  void ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline) override {
    Post([ranges = Parse(ack_ids), deadline](LocalSubscriptionShard& shard) {
      shard.deliverer().ModifyDeadline(ranges, deadline);
    });
  }

  void Close() override {
    if (closed_.exchange(true)) return;
    Post([session = session_](LocalSubscriptionShard& shard) {
      shard.deliverer().CloseSession(session);
    });
  }

 private:
  std::vector<AckRange> Parse(const std::vector<std::string>& ack_ids) const {
    const ShardContext& context = shard_->context();
    return ParseAckIds(ack_ids, context.ack_id_key, context.environment.uid, context.partition);
  }
  template <typename F>
  void Post(F task) {
    shard_->context().executor().Post(
        [shard = shard_, task = std::move(task)]() mutable { task(*shard); });
  }

  const std::shared_ptr<LocalSubscriptionShard> shard_;
  const SessionId session_;
  std::atomic<bool> closed_ = false;
};

}  // namespace

std::unique_ptr<Stream> MakeSubscriptionStream(std::shared_ptr<LocalSubscriptionShard> shard,
                                               SessionId session) {
  return std::make_unique<SubscriptionStream>(std::move(shard), session);
}

}  // namespace millrace::pubsub
