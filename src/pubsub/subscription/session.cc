#include "pubsub/subscription/session.h"

#include <algorithm>

namespace millrace::pubsub {

Session& SessionTurns::Add(const StreamOptions& options, std::shared_ptr<StreamConsumer> consumer) {
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->consumer = std::move(consumer);
  session->ack_deadline = options.ack_deadline;
  if (options.max_outstanding_messages > 0)
    session->messages_max = options.max_outstanding_messages;
  if (options.max_outstanding_bytes > 0) session->bytes_max = options.max_outstanding_bytes;
  Session& added = *session;
  sessions_.emplace(added.id, std::move(session));
  return added;
}

Session* SessionTurns::Find(SessionId id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

void SessionTurns::Remove(SessionId id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  if (it->second->in_turn) --waiting_;
  sessions_.erase(it);
}

void SessionTurns::MayEnter(Session& session) {
  if (session.in_turn || !session.MayTake()) return;
  session.in_turn = true;
  ++waiting_;
  turns_.push_back(session.id);
}

void SessionTurns::FreeCredit(SessionId id, uint64_t messages, uint64_t bytes) {
  if (id == kUnarySession) return;
  Session* session = Find(id);
  if (session == nullptr) return;
  session->outstanding_messages -= std::min(messages, session->outstanding_messages);
  session->outstanding_bytes -= std::min(bytes, session->outstanding_bytes);
  MayEnter(*session);
}

Session* SessionTurns::Next() {
  while (!turns_.empty()) {
    Session* session = Find(turns_.front());
    turns_.pop_front();
    if (session == nullptr) continue;
    session->in_turn = false;
    --waiting_;
    if (session->MayTake()) return session;
  }
  return nullptr;
}

void SessionTurns::PutBack(Session& session) {
  if (session.in_turn) return;
  session.in_turn = true;
  ++waiting_;
  turns_.push_front(session.id);
}

void SessionTurns::Clear() {
  sessions_.clear();
  turns_.clear();
  waiting_ = 0;
}

}  // namespace millrace::pubsub
