// Streams of one subscription: their credit and their turns.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "pubsub/broker.h"
#include "pubsub/subscription/lease_table.h"

namespace millrace::pubsub {

// One stream. Credit is what it may still have outstanding; a demand is one answer its connection
// has room for.
struct Session {
  SessionId id = 0;
  std::shared_ptr<StreamConsumer> consumer;
  Duration ack_deadline{};
  uint64_t messages_max = UINT64_MAX, bytes_max = UINT64_MAX;
  uint64_t outstanding_messages = 0, outstanding_bytes = 0;
  size_t demand_bytes = 0;  // 0: none
  bool in_turn = false;

  bool MayTake() const {
    return demand_bytes > 0 && outstanding_messages < messages_max &&
           (outstanding_bytes < bytes_max || outstanding_messages == 0);
  }
  // A message larger than the byte limit goes when nothing else is outstanding.
  bool Fits(uint64_t size, uint64_t taken_messages, uint64_t taken_bytes) const {
    if (outstanding_messages + taken_messages == 0) return true;
    return outstanding_messages + taken_messages < messages_max &&
           outstanding_bytes + taken_bytes < bytes_max &&
           size <= bytes_max - outstanding_bytes - taken_bytes;
  }
};

// Those sessions that may take something stand in a queue; each is served in turn and goes to its
// end. Belongs to one subscription shard and its executor. Chooses no messages.
class SessionTurns {
 public:
  Session& Add(const StreamOptions& options, std::shared_ptr<StreamConsumer> consumer);
  Session* Find(SessionId id);
  void Remove(SessionId id);
  // Its demand or credit grew.
  void MayEnter(Session& session);
  // Leases of this session ended.
  void FreeCredit(SessionId id, uint64_t messages, uint64_t bytes);
  // Takes the next one out of the queue; null when nobody waits.
  Session* Next();
  // Back to the head of the queue: it could not be served now.
  void PutBack(Session& session);

  size_t waiting() const { return waiting_; }
  size_t size() const { return sessions_.size(); }
  template <typename F>
  void ForEach(F visit) {
    for (auto& [id, session] : sessions_) visit(*session);
  }
  void Clear();

 private:
  SessionId next_id_ = 1;
  absl::flat_hash_map<SessionId, std::unique_ptr<Session>> sessions_;
  std::deque<SessionId> turns_;  // may name sessions that were removed
  size_t waiting_ = 0;
};

}  // namespace millrace::pubsub
