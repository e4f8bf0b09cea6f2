// The messages still to be delivered, fetched from the topic as they are asked for.
#pragma once

#include <vector>

#include "base/task.h"
#include "pubsub/subscription/shard_context.h"

namespace millrace::pubsub {

// Reads a topic partition forward from where it is asked, from memory when it can, else from disk,
// and keeps a bounded stretch of what it read, so that small demands do not scan an entry again.
// Belongs to one subscription shard and its executor. Does not know which messages are acked.
class MessageFeed {
 public:
  // `ready` runs (on the shard's executor) when a read from disk has ended; `seen` gets everything
  // read, in order of reading.
  MessageFeed(const ShardContext& context, Task ready,
              Callback<void(const std::vector<StoredMessage>&)> seen);

  enum class Answer {
    kReady,    // *message; whoever moves from it calls Passed()
    kReading,  // `ready` will run
    kGone,     // nothing lives in [offset, *gone_end)
  };
  // Offsets asked for should grow: going back costs a new read. Reads within [offset, end), about
  // `bytes` at once.
  Answer At(uint64_t offset, uint64_t end, size_t bytes, StoredMessage** message,
            uint64_t* gone_end);
  // The message answered last was given out.
  void Passed();
  // Drops what is kept; an outstanding read is forgotten.
  void Clear();
  bool reading() const { return reading_; }

 private:
  struct Stretch {
    std::vector<StoredMessage> messages;
    uint64_t begin = 0, end = 0;  // with `certain`: what is not in `messages` does not live
    bool certain = false;
  };
  void StartRead(uint64_t from, uint64_t end, size_t bytes);
  void OnRead(uint64_t generation, uint64_t from, uint64_t end, size_t bytes,
              StatusOr<std::vector<StoredMessage>> messages);
  void MayReadAhead(uint64_t end, size_t bytes);

  const ShardContext& context_;
  Task ready_;
  Callback<void(const std::vector<StoredMessage>&)> seen_;
  Stretch now_;
  size_t position_ = 0;  // in now_.messages
  Stretch ahead_;        // read from disk while now_ is being delivered
  bool reading_ = false;
  uint64_t generation_ = 0;
  TimerId retry_ = 0;
};

}  // namespace millrace::pubsub
