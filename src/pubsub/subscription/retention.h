// Lets go of messages that are older than the subscription keeps them.
#pragma once

#include "base/task.h"
#include "pubsub/subscription/ack_state.h"
#include "pubsub/subscription/shard_context.h"

namespace millrace::pubsub {

// Publish times never go back within a topic partition, so what has expired is a stretch from the
// cursor on: whole blocks by their newest message, the rest message by message. Belongs to one
// subscription shard and its executor. Acks nothing itself.
class Retention {
 public:
  // `expired` acks a run, by a record like any other.
  Retention(const ShardContext& context, const AckState& state,
            Callback<void(const AckedRun&)> expired)
      : context_(context), state_(state), expired_(std::move(expired)) {}

  // Finds everything published before `limit`; one search at a time, in pieces.
  void ExpireBefore(WallTime limit);
  // The limit may have moved back: what was learnt of the oldest message stays true, so nothing is
  // needed but a new call.

 private:
  void Search();
  void Read(uint64_t from, uint64_t end);
  void Look(uint64_t from, uint64_t end, const std::vector<StoredMessage>& messages);

  const ShardContext& context_;
  const AckState& state_;
  Callback<void(const AckedRun&)> expired_;
  bool searching_ = false;
  WallTime limit_;
  WallTime oldest_{INT64_MIN};  // no unacked message was published before
};

}  // namespace millrace::pubsub
