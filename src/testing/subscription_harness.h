// One subscription shard with everything around it under a test's control: time, executor, log,
// topic; crashes and restarts.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "pubsub/subscription/subscription_shard.h"
#include "testing/fake_clock.h"
#include "testing/fake_topic_reader.h"
#include "testing/manual_executor.h"
#include "testing/manual_log.h"
#include "testing/manual_timers.h"

namespace millrace::testing {

// Collects what a stream gets.
class FakeStreamConsumer : public pubsub::StreamConsumer {
 public:
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override {
    ++answers;
    for (pubsub::Delivery& d : deliveries) got.push_back(std::move(d));
  }
  void OnProperties(pubsub::SubscriptionProperties p) override { properties = p; }
  void OnAckOutcome(bool, pubsub::AckOutcome) override {}
  void OnEnd(Status status) override { end = status; }

  // Takes what came since the last call.
  std::vector<pubsub::Delivery> Take() { return std::exchange(got, {}); }
  std::vector<uint64_t> TakeOffsets() {
    std::vector<uint64_t> offsets;
    for (const pubsub::Delivery& d : Take()) offsets.push_back(d.offset);
    return offsets;
  }

  std::vector<pubsub::Delivery> got;
  int answers = 0;
  std::optional<pubsub::SubscriptionProperties> properties;
  std::optional<Status> end;
};

// Owned by a test and used on its thread. The topic, the log and the rows outlive a crash of the
// shard.
class SubscriptionHarness {
 public:
  explicit SubscriptionHarness(pubsub::SubscriptionSettings s = {}, uint64_t start = 0)
      : topic(std::make_shared<FakeTopicReader>(clock)), settings(s), start_offset(start) {
    Boot();
  }
  ~SubscriptionHarness() { shard.reset(); }

  // A shard from the rows and the durable records.
  void Boot() {
    worlds.push_back(std::make_unique<World>(clock));
    pubsub::SubscriptionShardEnvironment environment;
    environment.uid = {7};
    environment.name = "projects/p/subscriptions/s";
    environment.executor = &executor();
    environment.clock = &clock;
    environment.timers = &timers();
    environment.log = &log;
    environment.topic = topic;
    environment.ack_id_key = "0123456789abcdef";
    environment.boot_generation = ++generation;
    shard = pubsub::SubscriptionShard::Make(environment, settings, start_offset);
    for (auto& [key, value] : rows) Check(shard->LoadRow(key, value));
    Check(log.Replay(
        0, [&](storage::Lsn, const storage::Record& record) { return shard->Replay(record); }));
    shard->Start();
    Run();
  }
  // What was not durable is lost; then a new start. Streams of the old shard are dead.
  void Crash() {
    log.Crash();
    topic->Forget(executor());
    shard.reset();
    Boot();
  }
  // Runs tasks and commits until nothing moves.
  void Run() {
    do {
      pool().RunAll();
    } while (log.Commit() > 0 || pool().queued() > 0);
  }
  void RunWithoutCommit() { pool().RunAll(); }
  void Advance(Duration by) {
    clock.Advance(by);
    timers().RunDue();
    Run();
  }
  void Checkpoint() {
    shard->WriteCheckpoint([&](storage::WriteBatch batch) {
      for (const storage::WriteBatch::Op& op : batch.ops()) Apply(op);
    });
    Run();
  }

  // `count` messages with some text each, as one commit.
  void Publish(int count, size_t size = 10) {
    for (int i = 0; i < count; ++i) topic->Publish(std::string(size, 'x'));
    topic->Commit();
    Run();
  }
  // With a timestamp attribute "ts" of `ms`.
  void PublishAt(int64_t ms) {
    topic->Publish(Wire(std::to_string(ms)));
    topic->Commit();
  }
  static std::string Wire(const std::string& ts) {
    std::string entry = fmt::format("\x0a\x02ts\x12{}{}", static_cast<char>(ts.size()), ts);
    return fmt::format("\x0a\x03xyz\x12{}{}", static_cast<char>(entry.size()), entry);
  }

  struct Consumer {
    std::shared_ptr<FakeStreamConsumer> end = std::make_shared<FakeStreamConsumer>();
    std::unique_ptr<pubsub::Stream> stream;
    void Demand(size_t bytes = 1 << 20) { stream->Demand(bytes); }
  };
  Consumer Open(int64_t messages = 0, int64_t bytes = 0,
                Duration deadline = std::chrono::seconds(10)) {
    Consumer consumer;
    pubsub::StreamOptions options;
    options.max_outstanding_messages = messages;
    options.max_outstanding_bytes = bytes;
    options.ack_deadline = deadline;
    consumer.stream = shard->OpenStream(options, consumer.end);
    Run();
    return consumer;
  }
  struct Pull {
    std::optional<StatusOr<std::vector<pubsub::Delivery>>> answer;
    std::shared_ptr<void> handle;
    std::vector<uint64_t> Offsets() const {
      std::vector<uint64_t> offsets;
      for (const pubsub::Delivery& d : **answer) offsets.push_back(d.offset);
      return offsets;
    }
  };
  std::shared_ptr<Pull> StartPull(int max_messages, bool immediately = false) {
    auto pull = std::make_shared<Pull>();
    pubsub::Broker::PullRequest request;
    request.max_messages = max_messages;
    request.return_immediately = immediately;
    pull->handle = shard->Pull(request, [pull](auto answer) { pull->answer = std::move(answer); });
    Run();
    return pull;
  }
  // False: not answered yet.
  std::shared_ptr<std::optional<Status>> Ack(std::vector<std::string> ids) {
    auto answer = std::make_shared<std::optional<Status>>();
    shard->Acknowledge(std::move(ids), [answer](Status status) { *answer = status; });
    return answer;
  }
  void ModAck(std::vector<std::string> ids, int seconds) {
    shard->ModifyAckDeadline(std::move(ids), std::chrono::seconds(seconds), [](Status) {});
    Run();
  }
  pubsub::BacklogInfo Query(std::optional<std::string> attribute = std::nullopt,
                            Duration band = std::chrono::seconds(10)) {
    std::optional<pubsub::BacklogInfo> info;
    shard->QueryBacklog(attribute, band,
                        [&](StatusOr<pubsub::BacklogInfo> answer) { info = *answer; });
    Run();
    return info.value();
  }
  static std::vector<std::string> Ids(const std::vector<pubsub::Delivery>& deliveries) {
    std::vector<std::string> ids;
    for (const pubsub::Delivery& d : deliveries) ids.push_back(d.ack_id);
    return ids;
  }

  FakeClock clock;
  std::shared_ptr<FakeTopicReader> topic;
  ManualLog log;
  std::map<std::string, std::string> rows;
  pubsub::SubscriptionSettings settings;
  uint64_t start_offset;
  uint64_t generation = 0;
  // What a crash kills; kept, never run again, because dead streams may still point there.
  struct World {
    explicit World(const Clock& clock) : timers(clock), executor(pool) {}
    ManualExecutor pool;
    ManualTimers timers;
    SerialExecutor executor;
  };
  std::vector<std::unique_ptr<World>> worlds;
  ManualExecutor& pool() { return worlds.back()->pool; }
  ManualTimers& timers() { return worlds.back()->timers; }
  SerialExecutor& executor() { return worlds.back()->executor; }
  std::shared_ptr<pubsub::SubscriptionShard> shard;

 private:
  void Apply(const storage::WriteBatch::Op& op) {
    switch (op.kind) {
      case storage::WriteBatch::Op::kPut:
        rows[op.key] = op.value;
        break;
      case storage::WriteBatch::Op::kDelete:
        rows.erase(op.key);
        break;
      case storage::WriteBatch::Op::kDeleteRange:
        rows.erase(rows.lower_bound(op.key), rows.lower_bound(op.value));
        break;
    }
  }
  static void Check(const Status& status) {
    if (!status.ok()) MR_DIE("recovery failed: {}", MessageOf(status));
  }
};

}  // namespace millrace::testing
