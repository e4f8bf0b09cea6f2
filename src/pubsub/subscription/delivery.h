// Who gets which message when: leases, redelivery, streams and waiting pulls of one subscription
// brought together.
#pragma once

#include <memory>
#include <vector>

#include "pubsub/subscription/ack_blocks.h"
#include "pubsub/subscription/backlog.h"
#include "pubsub/subscription/lease_table.h"
#include "pubsub/subscription/pull_queue.h"
#include "pubsub/subscription/redelivery.h"
#include "pubsub/subscription/session.h"
#include "pubsub/subscription/shard_context.h"

namespace millrace::pubsub {

// What the rest of the shard has to do when delivery finds something out. Called on the shard's
// executor.
class DeliveryListener {
 public:
  virtual ~DeliveryListener() = default;
  // Unacked offsets that the topic does not hold any more: nobody can ever receive them.
  virtual void OnVanished(uint64_t first, uint64_t count) = 0;
  // Messages read at the head of the backlog, in order.
  virtual void OnRead(const std::vector<StoredMessage>& messages) = 0;
};

// Guarantees: a message has one lease at a time; what came back goes before what is new, each in
// offset order; no stream gets more than its credit; credit freed and messages published are used
// in the same turn of the executor; nothing acked is delivered. All its state is volatile: a
// restart delivers every unacked message again. Acks themselves, records and backlog figures do not
// belong here. Belongs to one subscription shard and its executor.
class Deliverer {
 public:
  static constexpr uint64_t kOutstandingMax = 1'000'000;
  static constexpr uint64_t kUnknownBytes = UINT64_MAX;
  struct Counters {
    uint64_t delivered = 0, expired = 0, nacked = 0;
  };
  using Settled = FunctionRef<void(uint64_t first, uint64_t count, uint64_t bytes)>;

  Deliverer(const ShardContext& context, const AckBlocks& acks, DeliveryListener& listener);

  // Once, when recovery is over: everything unacked is to be delivered.
  void Start();
  // Streams and pulls end with `status`, leases are forgotten; nothing is delivered afterwards.
  void End(const Status& status);
  // The deadline of messages given to unary pulls.
  void SetPullDeadline(Duration deadline) { pull_deadline_ = deadline; }

  // The returned id names the pull for CancelPull.
  uint64_t Pull(const Broker::PullRequest& request, Reply<std::vector<Delivery>> reply);
  void CancelPull(uint64_t id);
  SessionId OpenSession(const StreamOptions& options, std::shared_ptr<StreamConsumer> consumer);
  void CloseSession(SessionId id);
  void Demand(SessionId id, size_t max_bytes);
  void SetAckDeadline(SessionId id, Duration deadline);
  void SendProperties(SubscriptionProperties properties);

  // A deadline of zero is a nack.
  void ModifyDeadline(const std::vector<AckRange>& ranges, Duration deadline);
  // Says which unacked offsets of the range an ack settles, and ends their leases. `settled` marks
  // them acked before it returns. Old epochs count too: a late ack is an ack. The caller pumps when
  // it has settled everything.
  void Settle(const AckRange& range, Settled settled);
  // [first, end) was acked by something else than a subscriber: takes it away from whoever has it.
  void Forget(uint64_t first, uint64_t end);
  // Housekeeping: lets go of messages read ahead when nobody has taken any since the last call.
  void DropIdleReads();
  // Gives out what can be given out now.
  void Pump();

  // Below, everything was delivered at least once or is acked.
  uint64_t next_new() const { return next_new_; }
  uint64_t outstanding() const { return leases_.outstanding(); }
  const Counters& counters() const { return counters_; }
  size_t open_sessions() const { return sessions_.size(); }

 private:
  // What one taker may have.
  struct Room {
    uint64_t messages = 0;
    size_t bytes = 0;                  // of one answer
    const Session* session = nullptr;  // null: a unary pull
    Duration ack_deadline{};
  };
  enum class Stop {
    kFull,     // the taker has what it may have
    kNoFit,    // the next message does not fit into its credit
    kEmpty,    // nothing (more) to deliver
    kReading,  // the next message is being read
    kLeases,   // too many are outstanding
  };
  struct Grant {
    std::vector<Delivery> deliveries;
    uint64_t bytes = 0;
    Stop stop = Stop::kFull;
    SteadyTime deadline;
    uint64_t epoch = 0;  // of the open run; 0: none
    bool again = false;
  };

  uint64_t Available() const;
  Stop ServePull(bool* served);
  Stop ServeSession(Session& session, bool* served);
  Grant Take(const Room& room);
  void TakeReturned(const Room& room, uint64_t end, Grant* grant);
  void TakeNew(const Room& room, uint64_t end, Grant* grant);
  // False: no room for it; grant->stop says why.
  bool MayAdd(const Room& room, size_t size, Grant* grant) const;
  void Add(const Room& room, StoredMessage&& message, bool again, Grant* grant);
  void Return(const ReleasedLeases& released);
  void AnswerImmediatePulls();
  void OnPullTimer(uint64_t id);
  void WaitForGrowth();
  void ArmTimer();
  void OnTimer();

  const ShardContext& context_;
  const AckBlocks& acks_;
  DeliveryListener& listener_;
  LeaseTable leases_;
  RedeliveryQueue returned_;
  MessageFeed new_feed_, returned_feed_;
  SessionTurns sessions_;
  PullQueue pulls_;
  Duration pull_deadline_ = std::chrono::seconds(10);
  uint64_t next_new_ = 0;
  uint64_t end_ = 0;          // committed end of the topic, as seen last
  uint64_t size_seen_ = 100;  // of a recent message: a guess for reserving space
  bool pulls_turn_ = true;    // pulls and streams take turns
  bool started_ = false, ended_ = false;
  bool waiting_for_growth_ = false;
  TimerId timer_ = 0;
  SteadyTime timer_at_ = SteadyTime::Max();
  Counters counters_;
  uint64_t delivered_before_ = 0;  // at the last DropIdleReads
};

}  // namespace millrace::pubsub
