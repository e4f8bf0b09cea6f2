// The whole shard against a simple model: random publishes, pulls, streams, acks, nacks, deadlines,
// expiry, retention, checkpoints and crashes. SEED=n runs one seed, SEEDS=n that many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include "testing/subscription_harness.h"

namespace millrace::pubsub {
namespace {

using Harness = ::millrace::testing::SubscriptionHarness;
using std::chrono::milliseconds;

constexpr int64_t kNoSession = -1;
constexpr Duration kRetention = std::chrono::minutes(10);

// One message as the model sees it.
struct ModelMessage {
  uint32_t size = 0;
  int64_t event_ms = 0;
  WallTime publish_time;
  enum {
    kUnacked,
    kPending,
    kAcked
  } ack = kUnacked;                        // pending: applied, its record not known to be durable
  bool leased = false, delivered = false;  // in this boot
  int64_t session = kNoSession;
  SteadyTime deadline;
  std::string ack_id;
};

struct ModelSession {
  Harness::Consumer consumer;
  int64_t messages_max = 0, bytes_max = 0;
  bool demand = false;
  size_t demand_bytes = 0;
  Duration deadline{};
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), harness_(Settings()) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step();
      Settle();
    }
    if (!::testing::Test::HasFailure()) Drain();
  }

 private:
  static SubscriptionSettings Settings() {
    SubscriptionSettings settings;
    settings.retention = kRetention;
    return settings;
  }
  uint64_t Random(uint64_t below) { return random_() % below; }

  // Commands that the model must see in the shard's order start from rest.
  void Sync() {
    harness_.RunWithoutCommit();
    Collect();
  }

  void Step() {
    uint64_t what = Random(20);
    if (what > 6) Sync();
    switch (what) {
      case 0:
      case 1:
      case 2:
        return Publish();
      case 3:
        return Open();
      case 4:
      case 5:
      case 6:
        return Demand();
      case 7:
        return Pull();
      case 8:
      case 9:
      case 10:
      case 11:
        return Ack();
      case 12:
      case 13:
        return ModAck();
      case 14:
      case 15:
        return Advance();
      case 16:
        return Close();
      case 17:
        return Query();
      case 18:
        harness_.topic->EvictBelow(messages_.empty() ? 0 : Random(messages_.size() + 1));
        return Random(2) ? Checkpoint() : harness_.pool().RunOne() ? void() : void();
      default:
        if (Random(3) == 0) return Crash();
        return Expire();
    }
  }

  void Publish() {
    for (uint64_t n = 1 + Random(Random(8) == 0 ? 3000 : 40); n > 0; --n) {
      ModelMessage m;
      m.publish_time = harness_.clock.WallNow();
      std::string wire;
      if (Random(10) == 0) {
        wire = "\x0a\x01x";
        m.event_ms = m.publish_time.micros / 1000;
      } else {
        m.event_ms = m.publish_time.micros / 1000 - 100'000 + static_cast<int64_t>(Random(200'000));
        wire = Harness::Wire(std::to_string(m.event_ms));
      }
      // An unknown field pads the message.
      if (Random(4) == 0) wire += "\x7a\x64" + std::string(100, 'p');
      m.size = wire.size();
      harness_.topic->Publish(wire);
      messages_.push_back(m);
    }
    harness_.topic->Commit();
  }

  void Open() {
    if (sessions_.size() >= 5) return;
    auto session = std::make_unique<ModelSession>();
    session->messages_max = Random(3) == 0 ? 0 : 1 + Random(200);
    session->bytes_max = Random(2) == 0 ? 0 : 1 + Random(5000);
    session->deadline = milliseconds(10 * (1 + Random(3000)));
    session->consumer = harness_.Open(session->messages_max, session->bytes_max, session->deadline);
    sessions_[next_session_++] = std::move(session);
  }

  ModelSession* AnySession(int64_t* id = nullptr) {
    if (sessions_.empty()) return nullptr;
    auto it = std::next(sessions_.begin(), Random(sessions_.size()));
    if (id != nullptr) *id = it->first;
    return it->second.get();
  }

  void Demand() {
    ModelSession* session = AnySession();
    if (session == nullptr || session->demand) return;
    session->demand = true;
    session->demand_bytes = 1 + Random(Random(2) ? 100 : 20'000);
    session->consumer.Demand(session->demand_bytes);
  }

  void Pull() {
    auto pull = harness_.StartPull(1 + Random(50), Random(2) == 0);
    if (pull->answer.has_value()) {
      Delivered(**pull->answer, kNoSession, std::chrono::seconds(10));
    } else if (Random(2) == 0) {
      pull->handle.reset();
    } else {
      pulls_.push_back(pull);
    }
  }

  std::vector<std::string> SomeIds() {
    std::vector<std::string> ids;
    if (messages_.empty()) return ids;
    uint64_t first = Random(messages_.size());
    if (Random(2) == 0) first = FirstUnacked();
    uint64_t n = 1 + Random(100);
    for (uint64_t o = first; o < messages_.size() && ids.size() < n; ++o) {
      if (Random(10) == 0) continue;
      auto& known = ids_[o];
      if (known.empty()) continue;
      ids.push_back(Random(10) == 0 ? known[Random(known.size())] : known.back());
      chosen_.emplace_back(o, ids.back());
    }
    return ids;
  }
  uint64_t FirstUnacked() const {
    for (uint64_t o = 0; o < messages_.size(); ++o) {
      if (messages_[o].ack == ModelMessage::kUnacked) return o;
    }
    return messages_.size();
  }

  void Ack() {
    chosen_.clear();
    std::vector<std::string> ids = SomeIds();
    if (ids.empty()) return;
    ModelSession* session = AnySession();
    for (auto& [o, id] : chosen_) {
      ModelMessage& m = messages_[o];
      if (m.ack == ModelMessage::kUnacked) m.ack = ModelMessage::kPending;
      m.leased = false;
    }
    if (session != nullptr && Random(2) == 0) {
      session->consumer.stream->Acknowledge(ids);
    } else {
      // Handed to the executor like everything else, so that it keeps its place.
      harness_.executor().Post([this, ids] { answers_.push_back(harness_.Ack(ids)); });
    }
  }

  void ModAck() {
    chosen_.clear();
    std::vector<std::string> ids = SomeIds();
    if (ids.empty()) return;
    int seconds = Random(2) ? 0 : 1 + Random(60);
    for (auto& [o, id] : chosen_) {
      ModelMessage& m = messages_[o];
      if (!m.leased || m.ack_id != id) continue;
      if (seconds == 0) {
        m.leased = false;
      } else {
        m.deadline = harness_.clock.SteadyNow() + std::chrono::seconds(seconds);
      }
    }
    ModelSession* session = AnySession();
    if (session != nullptr && Random(2) == 0) {
      session->consumer.stream->ModifyAckDeadline(ids, std::chrono::seconds(seconds));
    } else {
      harness_.ModAck(ids, seconds);
    }
  }

  void Advance() {
    harness_.clock.Advance(milliseconds(10 * (1 + Random(Random(4) == 0 ? 6000 : 300))));
    for (ModelMessage& m : messages_) {
      if (m.leased && m.deadline <= harness_.clock.SteadyNow()) m.leased = false;
    }
    harness_.timers().RunDue();
  }

  void Close() {
    int64_t id;
    ModelSession* session = AnySession(&id);
    if (session == nullptr || Random(2)) return;
    session->consumer.stream->Close();
    for (ModelMessage& m : messages_) {
      if (m.leased && m.session == id) m.leased = false;
    }
    sessions_.erase(id);
  }

  void Checkpoint() {
    harness_.Checkpoint();
    if (Random(2)) harness_.log.DropDurable();
  }

  void Expire() {
    WallTime now = harness_.clock.WallNow();
    for (ModelMessage& m : messages_) {
      if (m.publish_time >= now - kRetention) continue;
      m.leased = false;
      if (m.ack == ModelMessage::kUnacked) m.ack = ModelMessage::kPending;
    }
    harness_.executor().Post([this, now] { harness_.shard->Expire(now); });
  }

  void Crash() {
    harness_.log.CommitSome(Random(3));
    harness_.RunWithoutCommit();
    for (auto& answer : answers_) EXPECT_TRUE(!answer->has_value() || (*answer)->ok());
    answers_.clear();
    sessions_.clear();
    pulls_.clear();
    harness_.Crash();
    registered_ = false;
    next_first_ = first_seen_ = 0;
    for (uint64_t o = 0; o < messages_.size(); ++o) {
      ModelMessage& m = messages_[o];
      bool needed = harness_.shard->CountNeeded(o, 1) == 1;
      EXPECT_FALSE(m.ack == ModelMessage::kUnacked && !needed) << "lost " << o;
      EXPECT_FALSE(m.ack == ModelMessage::kAcked && needed) << "ack lost " << o;
      m.ack = needed ? ModelMessage::kUnacked : ModelMessage::kAcked;
      m.leased = m.delivered = false;
    }
  }

  void Query() {
    Duration band = std::chrono::seconds(60);
    std::optional<BacklogInfo> info;
    bool with_attribute = Random(3) > 0;
    std::optional<std::string> attribute;
    if (with_attribute) attribute = "ts";
    if (Random(2)) {
      harness_.Run();
      Collect();
    }
    harness_.executor().Post([&, attribute] {
      harness_.shard->QueryBacklog(attribute, band,
                                   [&](StatusOr<BacklogInfo> answer) { info = *answer; });
    });
    harness_.Run();
    Collect();
    if (!info.has_value()) return ADD_FAILURE() << "no answer";
    uint64_t count = 0, bytes = 0;
    int64_t min_event = INT64_MAX, min_band = INT64_MAX;
    std::optional<WallTime> oldest;
    for (ModelMessage& m : messages_) {
      if (m.publish_time >= info->now - band) min_band = std::min(min_band, m.event_ms);
      if (m.ack != ModelMessage::kUnacked) continue;
      ++count;
      bytes += m.size;
      min_event = std::min(min_event, m.event_ms);
      if (!oldest) oldest = m.publish_time;
    }
    EXPECT_EQ(info->messages, count);
    EXPECT_EQ(info->bytes, bytes);
    EXPECT_EQ(info->oldest_unacked_publish, oldest);
    if (!with_attribute || !info->event_times_known) return;
    EXPECT_EQ(info->min_event_ms_unacked.value_or(INT64_MAX), min_event);
    if (registered_) {
      // Since the attribute was registered in this boot, nothing published within the band may be
      // missing.
      EXPECT_LE(info->min_event_ms_in_band.value_or(INT64_MAX), BandMinimum(info->now - band));
    }
    if (!registered_) registered_from_ = messages_.size();
    registered_ = true;
  }
  int64_t BandMinimum(WallTime since) const {
    int64_t minimum = INT64_MAX;
    for (uint64_t o = registered_from_; o < messages_.size(); ++o) {
      if (messages_[o].publish_time >= since) minimum = std::min(minimum, messages_[o].event_ms);
    }
    return minimum;
  }

  // Lets everything come to rest, then looks.
  void Settle() {
    if (Random(4) == 0) return;  // several steps in one turn
    Sync();
    CheckNobodyWaitsForNothing();
    if (Random(2) == 0) return;
    harness_.Run();
    Collect();
    for (auto& answer : answers_) EXPECT_TRUE(answer->has_value() && (*answer)->ok());
    answers_.clear();
    for (ModelMessage& m : messages_) {
      if (m.ack == ModelMessage::kPending) m.ack = ModelMessage::kAcked;
    }
  }

  void Collect() {
    for (auto& [id, session] : sessions_) {
      if (session->consumer.end->got.empty()) continue;
      session->demand = false;
      Delivered(session->consumer.end->Take(), id, session->deadline);
      CheckCredit(id, *session);
    }
    for (auto& pull : pulls_) {
      if (pull->answer.has_value()) Delivered(**pull->answer, kNoSession, std::chrono::seconds(10));
    }
    std::erase_if(pulls_, [](auto& pull) { return pull->answer.has_value(); });
    // Who of several takers came first is not known here, so order is checked from turn to turn.
    next_first_ = first_seen_;
  }

  void Delivered(const std::vector<Delivery>& deliveries, int64_t session, Duration deadline) {
    for (const Delivery& d : deliveries) {
      ASSERT_LT(d.offset, messages_.size());
      ModelMessage& m = messages_[d.offset];
      ids_[d.offset].push_back(d.ack_id);
      EXPECT_EQ(m.ack, ModelMessage::kUnacked) << "acked message delivered " << d.offset;
      EXPECT_FALSE(m.leased) << "delivered twice at once " << d.offset;
      EXPECT_EQ(d.message.size(), m.size);
      EXPECT_EQ(d.publish_time, m.publish_time);
      if (!m.delivered) {
        EXPECT_GE(d.offset, next_first_) << "first deliveries out of order";
        first_seen_ = std::max(first_seen_, d.offset + 1);
      }
      m.delivered = m.leased = true;
      m.session = session;
      m.deadline = harness_.clock.SteadyNow() + deadline;
      m.ack_id = d.ack_id;
    }
  }

  void CheckCredit(int64_t id, const ModelSession& session) {
    int64_t count = 0, bytes = 0;
    for (ModelMessage& m : messages_) {
      if (m.leased && m.session == id) ++count, bytes += m.size;
    }
    EXPECT_TRUE(session.messages_max == 0 || count <= session.messages_max);
    EXPECT_TRUE(session.bytes_max == 0 || count <= 1 || bytes <= session.bytes_max);
  }

  // With everything at rest no stream that has demand and credit stands before a message that fits.
  void CheckNobodyWaitsForNothing() {
    const ModelMessage* next = nullptr;
    for (const ModelMessage& m : messages_) {
      if (m.ack != ModelMessage::kUnacked || m.leased) continue;
      if (next == nullptr || (m.delivered && !next->delivered)) next = &m;
    }
    if (next == nullptr) return;
    EXPECT_TRUE(pulls_.empty());
    for (auto& [id, session] : sessions_) {
      if (!session->demand) continue;
      int64_t count = 0, bytes = 0;
      for (ModelMessage& m : messages_) {
        if (m.leased && m.session == id) ++count, bytes += m.size;
      }
      bool fits =
          count == 0 || ((session->messages_max == 0 || count < session->messages_max) &&
                         (session->bytes_max == 0 || bytes + next->size <= session->bytes_max));
      EXPECT_FALSE(fits) << "a stream waits although a message is there";
    }
  }

  void Drain() {
    harness_.Run();
    Collect();
    for (ModelMessage& m : messages_) {
      if (m.ack == ModelMessage::kPending) m.ack = ModelMessage::kAcked;
    }
    if (Random(2)) Crash();
    for (int i = 0; i < 1000; ++i) {
      auto pull = harness_.StartPull(1000, true);
      Delivered(**pull->answer, kNoSession, std::chrono::seconds(10));
      harness_.Ack(Harness::Ids(**pull->answer));
      for (auto& d : **pull->answer) {
        messages_[d.offset].ack = ModelMessage::kAcked;
        messages_[d.offset].leased = false;
      }
      harness_.Run();
      if (pull->Offsets().empty()) {
        while (!sessions_.empty()) {
          int64_t id = sessions_.begin()->first;
          sessions_.erase(id);
          for (ModelMessage& m : messages_) {
            if (m.session == id) m.leased = false;
          }
        }
        harness_.Run();
        Advance();
        harness_.Run();
      }
      if (FirstUnacked() == messages_.size()) break;
    }
    EXPECT_EQ(FirstUnacked(), messages_.size()) << "never delivered";
    EXPECT_EQ(harness_.shard->GetFigures().backlog_messages, 0u);
    EXPECT_EQ(harness_.Query().bytes, 0u);
  }

  std::mt19937_64 random_;
  Harness harness_;
  std::vector<ModelMessage> messages_;
  std::map<uint64_t, std::vector<std::string>> ids_;
  std::vector<std::pair<uint64_t, std::string>> chosen_;
  std::map<int64_t, std::unique_ptr<ModelSession>> sessions_;
  int64_t next_session_ = 0;
  std::vector<std::shared_ptr<Harness::Pull>> pulls_;
  std::vector<std::shared_ptr<std::optional<Status>>> answers_;
  uint64_t next_first_ = 0, first_seen_ = 0;
  uint64_t registered_from_ = 0;
  bool registered_ = false;
};

TEST(SubscriptionShardRandom, AgreesWithAModel) {
  uint64_t first = 1, count = 60;
  if (const char* seed = std::getenv("SEED")) first = std::strtoull(seed, nullptr, 10), count = 1;
  if (const char* seeds = std::getenv("SEEDS")) count = std::strtoull(seeds, nullptr, 10);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Simulation(seed).Run(400);
    if (HasFailure()) {
      std::fprintf(stderr, "failed with SEED=%llu\n", static_cast<unsigned long long>(seed));
      return;
    }
  }
  std::printf("seeds %llu to %llu agree\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + count - 1));
}

}  // namespace
}  // namespace millrace::pubsub
