// Makes acks durable: what was acked in one turn of the executor becomes one record.
#pragma once

#include <vector>

#include "pubsub/subscription/records.h"
#include "pubsub/subscription/shard_context.h"

namespace millrace::pubsub {

// Replies run on the shard's executor once everything recorded before them is durable. Belongs to
// one subscription shard and its executor. Does not change ack state: the shard has applied already
// what it records here.
class AckRecorder {
 public:
  explicit AckRecorder(const ShardContext& context) : context_(context) {}

  void Add(const AckedRun& run);
  void Add(StatusReply reply);
  // Appends what is collected. Runs by itself at the end of the turn.
  void Flush();

  uint64_t seq() const { return seq_; }
  void RestoreSeq(uint64_t seq) { seq_ = seq; }
  // The shard was written to a checkpoint: the next record makes it dirty again.
  void WasCheckpointed() { dirty_ = false; }
  void MarkDirty();

 private:
  void ScheduleFlush();

  const ShardContext& context_;
  uint64_t seq_ = 0;
  std::vector<AckedRun> runs_;
  std::vector<StatusReply> replies_;
  bool scheduled_ = false;
  bool dirty_ = false;
};

}  // namespace millrace::pubsub
