// Counts what waits: reads messages in the background so that backlog sums and event times are
// exact when someone asks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/task.h"
#include "pubsub/subscription/ack_state.h"
#include "pubsub/subscription/shard_context.h"

namespace millrace::pubsub {

// Where subscribers keep up, the messages they are given are all that is counted (OnRead) and
// nothing is read twice; otherwise the survey reads on from where it is, one piece a turn, when a
// query, a scrape or a new attribute wants it. Belongs to one subscription shard and its executor.
// Delivers nothing and acks nothing.
class Survey {
 public:
  // `progressed` runs when what a checkpoint would hold has grown.
  Survey(const ShardContext& context, AckState& state, Task progressed)
      : context_(context), state_(state), progressed_(std::move(progressed)) {}

  // Messages read for delivery, in order.
  void OnRead(const std::vector<StoredMessage>& messages);

  // Tracks event times of `attribute` from now on, over at least `band`.
  EventTimes& Register(const std::string& attribute, Duration band);
  // Answers once everything published before the call is counted and what is needed of the minimum
  // is exact.
  void Query(const std::optional<std::string>& attribute, Duration band,
             Callback<void(StatusOr<BacklogInfo>)> done);
  // Counts everything published so far, in the background; no answer.
  void CatchUp();
  // Publish time of the first unacked message, if memory knows it.
  std::optional<WallTime> OldestKnown() const;
  void End(const Status& status);

 private:
  struct Waiting {
    uint64_t end = 0;  // everything below must be counted
    WallTime now;      // no later publish is stamped before
    EventTimes* times = nullptr;
    Duration band{};
    bool oldest_read = false;
    Callback<void(StatusOr<BacklogInfo>)> done;
  };
  // What is read next. kLookBack, kScan: for an attribute registered later than the counting began.
  struct Work {
    enum Kind { kNone, kLookBack, kScan, kCount, kRecount, kRefine, kOldest } kind = kNone;
    uint64_t from = 0, end = 0;
    EventTimes* times = nullptr;
    EventTimes::Part part;
  };

  bool Joined(const EventTimes& times) const {
    return !times.looking_back() && times.cursor() >= state_.summaries.counted_end();
  }
  void Kick();
  void Step();
  Work Choose();
  bool ChooseFor(Waiting& waiting, Work* work);
  void Read(const Work& work);
  void Done(const Work& work, const std::vector<StoredMessage>& messages);
  void DoneScan(const Work& work, const std::vector<StoredMessage>& messages, uint64_t read_to);
  void DoneRecount(const std::vector<StoredMessage>& messages, uint64_t read_to);
  void CountOne(const StoredMessage& message);
  void SkipTo(uint64_t offset);
  void AnswerReady();
  BacklogInfo InfoFor(const Waiting& waiting);

  const ShardContext& context_;
  AckState& state_;
  Task progressed_;
  uint64_t wanted_end_ = 0;  // count at least as far
  std::vector<Waiting> waiting_;
  bool recounting_ = false;
  uint64_t recount_from_ = 0, recount_end_ = 0;
  struct Oldest {
    uint64_t offset = UINT64_MAX;
    WallTime publish_time;
  };
  mutable Oldest oldest_;
  bool busy_ = false;  // a step is posted or a read is outstanding
  bool ended_ = false;
  TimerId retry_ = 0;
};

}  // namespace millrace::pubsub
