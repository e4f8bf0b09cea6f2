// State machine of one subscription on one topic partition: leases, acks, redelivery, backlog,
// sessions.
//
// Lives on one SerialExecutor; every method runs there (the broker posts). decide → record → apply:
// Handle* methods decide, Apply changes state at run time and at recovery alike, effects run when
// the record is durable. Owned by the broker's catalogue. Does not belong here: names, pages,
// settings' validation (catalog/), wire formats (api/), reading the disk (topic/).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/timer.h"
#include "pubsub/broker.h"
#include "pubsub/topic/topic_reader.h"
#include "pubsub/types.h"
#include "storage/checkpoint.h"
#include "storage/commit_log.h"

namespace millrace::pubsub {

struct SubscriptionSettings {
  Duration ack_deadline = std::chrono::seconds(10);
  Duration retention = std::chrono::hours(24 * 7);
  bool retain_acked = false;
  SubscriptionProperties properties;
};

struct SubscriptionShardEnvironment {
  SubscriptionUid uid;
  std::string name;  // full resource name, for texts
  SerialExecutor* executor = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  storage::CommitLog* log = nullptr;
  storage::Checkpointer* checkpointer = nullptr;
  std::shared_ptr<TopicReader> topic;
  std::string ack_id_key;        // 16 bytes, durable: integrity of ack ids
  uint64_t boot_generation = 0;  // grows by every start: no lease epoch is used twice
};

class SubscriptionShard : public storage::Checkpointed,
                          public std::enable_shared_from_this<SubscriptionShard> {
 public:
  // A new subscription starts at `start_offset`; a known one is then given its rows (LoadRow) and
  // records (Replay).
  static std::shared_ptr<SubscriptionShard> Make(SubscriptionShardEnvironment environment,
                                                 SubscriptionSettings settings,
                                                 uint64_t start_offset);

  // Recovery, before Start. Rows are those that WriteCheckpoint put into Table::kBroker under
  // RowPrefix(uid).
  static std::string RowPrefix(SubscriptionUid uid);
  virtual Status LoadRow(std::string_view key, std::string_view value) = 0;
  virtual Status Replay(const storage::Record& record) = 0;
  virtual void Start() = 0;

  virtual void UpdateSettings(SubscriptionSettings settings) = 0;
  // Deleted, detached or shutting down: streams and pulls end with `status`; what is leased is
  // forgotten.
  virtual void End(Status status) = 0;

  virtual std::shared_ptr<void> Pull(Broker::PullRequest request,
                                     Reply<std::vector<Delivery>> reply) = 0;
  // UNARY acks: the reply waits for the commit. Ids are checked by the caller for form
  // (ParseAckId).
  virtual void Acknowledge(std::vector<std::string> ack_ids, StatusReply reply) = 0;
  virtual void ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline,
                                 StatusReply reply) = 0;
  virtual std::unique_ptr<Stream> OpenStream(StreamOptions options,
                                             std::shared_ptr<StreamConsumer> consumer) = 0;

  virtual void RegisterTimestampAttribute(const std::string& attribute, Duration band) = 0;
  virtual void QueryBacklog(const std::optional<std::string>& attribute, Duration band,
                            Callback<void(StatusOr<BacklogInfo>)> done) = 0;
  // Acks what is past its retention; called by housekeeping.
  virtual void Expire(WallTime now) = 0;
  // Of offsets [first, first + count): how many this subscription still needs.
  virtual uint32_t CountNeeded(uint64_t first, uint32_t count) const = 0;

  struct Figures {
    uint64_t backlog_messages = 0, backlog_bytes = 0, outstanding = 0, delivered = 0, acked = 0,
             expired_leases = 0, nacked = 0;
    std::optional<WallTime> oldest_unacked_publish;
    size_t open_streams = 0;
  };
  virtual Figures GetFigures() const = 0;
};

// Integrity-checked, opaque, at most 100 characters. False: malformed or forged, or of another
// subscription.
struct AckId {
  SubscriptionUid subscription;
  uint32_t partition = 0;
  uint64_t offset = 0;
  uint64_t epoch = 0;
};
std::string FormatAckId(const AckId& id, std::string_view key);
bool ParseAckId(std::string_view text, std::string_view key, AckId* id);

}  // namespace millrace::pubsub
