#include "pubsub/subscription/delivery.h"

#include <algorithm>

namespace millrace::pubsub {
namespace {

// Small stretches are not split further between waiting streams: an answer has a price of its own.
constexpr uint64_t kShareMin = 16;
constexpr uint64_t kAnswerMax = 10'000;  // messages

}  // namespace

Deliverer::Deliverer(const ShardContext& context, const AckBlocks& acks, DeliveryListener& listener)
    : context_(context),
      acks_(acks),
      listener_(listener),
      leases_(context.environment.boot_generation),
      new_feed_(
          context, [this] { Pump(); },
          [this](const std::vector<StoredMessage>& messages) { listener_.OnRead(messages); }),
      returned_feed_(context, [this] { Pump(); }, [](const std::vector<StoredMessage>&) {}) {}

void Deliverer::Start() {
  next_new_ = acks_.cursor();
  end_ = context_.topic().CommittedEnd();
  started_ = true;
}

void Deliverer::End(const Status& status) {
  if (ended_) return;
  ended_ = true;
  context_.environment.timers->Cancel(timer_);
  leases_.Clear();
  returned_.Clear();
  new_feed_.Clear();
  returned_feed_.Clear();
  sessions_.ForEach([&](Session& session) { session.consumer->OnEnd(status); });
  sessions_.Clear();
  while (!pulls_.empty()) {
    WaitingPull pull = pulls_.Take(pulls_.Front().id);
    context_.environment.timers->Cancel(pull.timer);
    pull.reply(status);
  }
}

uint64_t Deliverer::Pull(const Broker::PullRequest& request, Reply<std::vector<Delivery>> reply) {
  WaitingPull pull;
  pull.max_messages =
      static_cast<uint32_t>(std::clamp<int64_t>(request.max_messages, 1, PullQueue::kMessagesMax));
  pull.immediate = request.return_immediately;
  pull.reply = std::move(reply);
  uint64_t id = pulls_.Add(std::move(pull));
  Pump();
  if (WaitingPull* waiting = pulls_.Find(id)) {
    waiting->timer =
        context_.environment.timers->At(context_.SteadyNow() + request.wait, context_.executor(),
                                        context_.WhileAlive([this, id] { OnPullTimer(id); }));
  }
  return id;
}

void Deliverer::CancelPull(uint64_t id) {
  if (pulls_.Find(id) == nullptr) return;
  context_.environment.timers->Cancel(pulls_.Take(id).timer);
}

void Deliverer::OnPullTimer(uint64_t id) {
  if (pulls_.Find(id) == nullptr) return;
  pulls_.Take(id).reply(std::vector<Delivery>());
}

SessionId Deliverer::OpenSession(const StreamOptions& options,
                                 std::shared_ptr<StreamConsumer> consumer) {
  return sessions_.Add(options, std::move(consumer)).id;
}

void Deliverer::CloseSession(SessionId id) {
  if (sessions_.Find(id) == nullptr) return;
  sessions_.Remove(id);
  leases_.ReleaseSession(id, [&](const ReleasedLeases& released) { Return(released); });
  if (sessions_.size() == 0 && pulls_.empty()) {
    // Nobody is there to read on: what was read ahead only holds memory.
    new_feed_.Clear();
    returned_feed_.Clear();
  }
  Pump();
}

void Deliverer::Demand(SessionId id, size_t max_bytes) {
  Session* session = sessions_.Find(id);
  if (session == nullptr) return;
  session->demand_bytes = std::max<size_t>(max_bytes, 1);
  sessions_.MayEnter(*session);
  Pump();
}

void Deliverer::SetAckDeadline(SessionId id, Duration deadline) {
  if (Session* session = sessions_.Find(id)) session->ack_deadline = deadline;
}

void Deliverer::SendProperties(SubscriptionProperties properties) {
  sessions_.ForEach([&](Session& session) { session.consumer->OnProperties(properties); });
}

void Deliverer::ModifyDeadline(const std::vector<AckRange>& ranges, Duration deadline) {
  if (deadline.count() > 0) {
    SteadyTime until = context_.SteadyNow() + deadline;
    for (const AckRange& range : ranges)
      leases_.Extend(range.epoch, range.first, range.count, until);
    ArmTimer();
    return;
  }
  for (const AckRange& range : ranges) {
    leases_.Release(range.epoch, range.first, range.count, [&](const ReleasedLeases& released) {
      counters_.nacked += released.count;
      Return(released);
      sessions_.FreeCredit(released.session, released.count, released.bytes);
    });
  }
  Pump();
}

void Deliverer::Settle(const AckRange& range, Settled settled) {
  leases_.Release(range.epoch, range.first, range.count, [&](const ReleasedLeases& released) {
    settled(released.first, released.count, released.bytes);
    sessions_.FreeCredit(released.session, released.count, released.bytes);
  });
  // What that epoch does not hold any more: waiting for redelivery, redelivered, or not delivered
  // since the last start.
  uint64_t end = std::min(range.first + range.count, context_.topic().CommittedEnd());
  for (uint64_t offset = acks_.NextUnacked(range.first); offset < end;
       offset = acks_.NextUnacked(offset + 1)) {
    uint64_t bytes = kUnknownBytes;
    uint32_t size = 0;
    SessionId holder = kUnarySession;
    if (leases_.ReleaseOffset(offset, [&](const ReleasedLeases& released) {
          bytes = released.bytes;
          holder = released.session;
        })) {
      sessions_.FreeCredit(holder, 1, bytes);
    } else if (returned_.Remove(offset, &size)) {
      bytes = size;
    }
    settled(offset, 1, bytes);
  }
}

void Deliverer::Forget(uint64_t first, uint64_t end) {
  returned_.RemoveRange(first, end);
  end = std::min(end, next_new_);
  for (uint64_t offset = first; offset < end && leases_.outstanding() > 0; ++offset) {
    leases_.ReleaseOffset(offset, [&](const ReleasedLeases& released) {
      sessions_.FreeCredit(released.session, released.count, released.bytes);
    });
  }
}

void Deliverer::DropIdleReads() {
  bool idle = counters_.delivered == delivered_before_;
  delivered_before_ = counters_.delivered;
  // (Somebody may wait for a read under way.)
  if (!idle || new_feed_.reading() || returned_feed_.reading()) return;
  new_feed_.Clear();
  returned_feed_.Clear();
}

void Deliverer::Return(const ReleasedLeases& released) {
  for (uint32_t i = 0; i < released.count; ++i)
    returned_.Add(released.first + i, released.sizes[i]);
}

// Upper bound of what could be delivered now.
uint64_t Deliverer::Available() const {
  return returned_.size() + (end_ > next_new_ ? end_ - next_new_ : 0);
}

void Deliverer::Pump() {
  if (!started_ || ended_) return;
  std::vector<SessionId> passed_over;
  auto put_back = [&] {
    for (auto id = passed_over.rbegin(); id != passed_over.rend(); ++id) {
      if (Session* session = sessions_.Find(*id)) sessions_.PutBack(*session);
    }
    passed_over.clear();
  };
  while (sessions_.waiting() > 0 || !pulls_.empty()) {
    end_ = context_.topic().CommittedEnd();
    next_new_ = acks_.NextUnacked(next_new_);
    if (Available() == 0) break;
    pulls_turn_ = !pulls_turn_;
    bool served = false;
    Stop stop;
    if (!pulls_.empty() && (pulls_turn_ || sessions_.waiting() == 0)) {
      stop = ServePull(&served);
    } else {
      Session* session = sessions_.Next();
      if (session == nullptr) continue;
      stop = ServeSession(*session, &served);
      if (!served) passed_over.push_back(session->id);
    }
    if (served) {
      put_back();
    } else if (stop != Stop::kNoFit) {
      break;
    }
  }
  put_back();
  AnswerImmediatePulls();
  WaitForGrowth();
  ArmTimer();
}

Deliverer::Stop Deliverer::ServePull(bool* served) {
  Grant grant = Take({pulls_.Front().max_messages, PullQueue::kBytesMax, nullptr, pull_deadline_});
  if (grant.deliveries.empty()) return grant.stop;
  *served = true;
  WaitingPull pull = pulls_.Take(pulls_.Front().id);
  context_.environment.timers->Cancel(pull.timer);
  pull.reply(std::move(grant.deliveries));
  return grant.stop;
}

Deliverer::Stop Deliverer::ServeSession(Session& session, bool* served) {
  uint64_t sharers = sessions_.waiting() + 1;
  uint64_t share = std::max(kShareMin, (Available() + sharers - 1) / sharers);
  uint64_t messages =
      std::min({session.messages_max - session.outstanding_messages, share, kAnswerMax});
  Grant grant = Take({messages, session.demand_bytes, &session, session.ack_deadline});
  if (grant.deliveries.empty()) return grant.stop;
  *served = true;
  session.outstanding_messages += grant.deliveries.size();
  session.outstanding_bytes += grant.bytes;
  session.demand_bytes = 0;
  session.consumer->OnDeliveries(std::move(grant.deliveries));
  return grant.stop;
}

Deliverer::Grant Deliverer::Take(const Room& room) {
  Grant grant;
  grant.deadline = context_.SteadyNow() + room.ack_deadline;
  grant.stop = Stop::kEmpty;
  grant.deliveries.reserve(std::min({room.messages, Available(), room.bytes / size_seen_ + 1}));
  uint64_t end = end_;
  TakeReturned(room, end, &grant);
  if (returned_.empty()) TakeNew(room, end, &grant);
  counters_.delivered += grant.deliveries.size();
  return grant;
}

void Deliverer::TakeReturned(const Room& room, uint64_t end, Grant* grant) {
  while (!returned_.empty()) {
    uint64_t offset = returned_.First(), gone_end = 0;
    StoredMessage* message = nullptr;
    switch (returned_feed_.At(offset, std::min(end, returned_.StretchEnd()), room.bytes, &message,
                              &gone_end)) {
      case MessageFeed::Answer::kReading:
        grant->stop = Stop::kReading;
        return;
      case MessageFeed::Answer::kGone:
        returned_.RemoveRange(offset, gone_end);
        listener_.OnVanished(offset, gone_end - offset);
        continue;
      case MessageFeed::Answer::kReady:
        break;
    }
    if (!MayAdd(room, message->wire.size(), grant)) return;
    returned_.PopFirst();
    Add(room, std::move(*message), true, grant);
    returned_feed_.Passed();
  }
}

void Deliverer::TakeNew(const Room& room, uint64_t end, Grant* grant) {
  grant->stop = Stop::kEmpty;
  while ((next_new_ = acks_.NextUnacked(next_new_)) < end) {
    StoredMessage* message = nullptr;
    uint64_t gone_end = 0;
    switch (new_feed_.At(next_new_, end, room.bytes, &message, &gone_end)) {
      case MessageFeed::Answer::kReading:
        grant->stop = Stop::kReading;
        return;
      case MessageFeed::Answer::kGone:
        listener_.OnVanished(next_new_, gone_end - next_new_);
        next_new_ = gone_end;
        continue;
      case MessageFeed::Answer::kReady:
        break;
    }
    if (!MayAdd(room, message->wire.size(), grant)) return;
    ++next_new_;
    Add(room, std::move(*message), false, grant);
    new_feed_.Passed();
  }
}

bool Deliverer::MayAdd(const Room& room, size_t size, Grant* grant) const {
  uint64_t taken = grant->deliveries.size();
  if (leases_.outstanding() >= kOutstandingMax) {
    grant->stop = Stop::kLeases;
    return false;
  }
  if (taken >= room.messages || (taken > 0 && grant->bytes + size > room.bytes)) {
    grant->stop = Stop::kFull;
    return false;
  }
  if (room.session != nullptr && !room.session->Fits(size, taken, grant->bytes)) {
    grant->stop = Stop::kNoFit;
    return false;
  }
  return true;
}

void Deliverer::Add(const Room& room, StoredMessage&& message, bool again, Grant* grant) {
  auto size = static_cast<uint32_t>(message.wire.size());
  if (grant->epoch == 0 || grant->again != again || !leases_.Add(message.offset, size)) {
    SessionId holder = room.session == nullptr ? kUnarySession : room.session->id;
    grant->epoch = leases_.Open(message.offset, holder, grant->deadline, again);
    grant->again = again;
    leases_.Add(message.offset, size);
  }
  grant->bytes += size;
  size_seen_ = std::max<uint64_t>(size, 16);
  Delivery& delivery = grant->deliveries.emplace_back();
  delivery.message = std::move(message.wire);
  delivery.offset = message.offset;
  delivery.publish_time = message.publish_time;
  FormatAckId({context_.environment.uid, context_.partition, message.offset, grant->epoch},
              context_.ack_id_key, &delivery.ack_id);
}

void Deliverer::AnswerImmediatePulls() {
  if (new_feed_.reading() || returned_feed_.reading()) return;
  for (uint64_t id : pulls_.Immediate()) {
    WaitingPull pull = pulls_.Take(id);
    context_.environment.timers->Cancel(pull.timer);
    pull.reply(std::vector<Delivery>());
  }
}

void Deliverer::WaitForGrowth() {
  if (waiting_for_growth_ || (sessions_.waiting() == 0 && pulls_.empty())) return;
  waiting_for_growth_ = true;
  context_.topic().WhenGrown(end_, context_.executor(), context_.WhileAlive([this] {
    waiting_for_growth_ = false;
    Pump();
  }));
}

// A timer set too early is left alone: it finds nothing due and is set again then.
void Deliverer::ArmTimer() {
  SteadyTime next = leases_.NextDeadline();
  if (next >= timer_at_) return;
  context_.environment.timers->Cancel(timer_);
  timer_at_ = next;
  timer_ = context_.environment.timers->At(next, context_.executor(),
                                           context_.WhileAlive([this] { OnTimer(); }));
}

void Deliverer::OnTimer() {
  if (ended_) return;
  timer_at_ = SteadyTime::Max();
  timer_ = 0;
  leases_.ReleaseDue(context_.SteadyNow(), [&](const ReleasedLeases& released) {
    counters_.expired += released.count;
    Return(released);
    sessions_.FreeCredit(released.session, released.count, released.bytes);
  });
  Pump();
}

}  // namespace millrace::pubsub
