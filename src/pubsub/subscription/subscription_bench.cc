// What a message costs in the subscription shard: grant with ack id and lease, then ack. One
// thread, no network, no disk. Usage: subscription_bench [messages] [batch].
#include <cstdio>
#include <cstdlib>

#include "pubsub/subscription/ack_id.h"
#include "testing/subscription_harness.h"

namespace millrace::pubsub {
namespace {

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void BenchAckIds() {
  constexpr int kCount = 2'000'000;
  SipKey key = SipKey::From("0123456789abcdef");
  std::vector<std::string> ids(1000);
  double start = CpuSeconds();
  for (int i = 0; i < kCount; ++i) {
    std::string text;
    FormatAckId({{7}, 0, static_cast<uint64_t>(i), 5}, key, &text);
    ids[i % 1000] = std::move(text);
  }
  std::printf("format ack id: %.1f ns\n", (CpuSeconds() - start) / kCount * 1e9);
  start = CpuSeconds();
  uint64_t ranges = 0;
  for (int i = 0; i < kCount / 1000; ++i) ranges += ParseAckIds(ids, key, {7}, 0).size();
  std::printf("parse ack id: %.1f ns (%llu ranges)\n", (CpuSeconds() - start) / kCount * 1e9,
              static_cast<unsigned long long>(ranges));
}

// Grants everything in batches, then acks it in batches of 1,000; with `attribute` event times are
// tracked as well.
void BenchDrain(int messages, int batch, bool attribute) {
  testing::SubscriptionHarness h;
  std::string wire =
      testing::SubscriptionHarness::Wire("1767225600000") + "\x7a\x4a" + std::string(74, 'p');
  for (int i = 0; i < messages; ++i) h.topic->Publish(wire);
  if (attribute) h.shard->RegisterTimestampAttribute("ts", std::chrono::seconds(10));
  // Only what the shard itself does is of interest: the fake topic's copying of messages is
  // measured apart.
  double start = CpuSeconds();
  std::vector<StoredMessage> read;
  for (uint64_t at = 0; at < static_cast<uint64_t>(messages); at += 10'000) {
    read.clear();
    h.topic->TryRead(at, at + 10'000, 1 << 30, &read);
  }
  double reading = CpuSeconds() - start;
  auto c = h.Open(0, 0, std::chrono::seconds(600));
  start = CpuSeconds();
  while (c.end->got.size() < static_cast<size_t>(messages)) {
    c.Demand(batch * wire.size());
    h.pool().RunAll();
  }
  double granted = CpuSeconds();
  std::vector<std::string> ids;
  for (auto& d : c.end->got) {
    ids.push_back(std::move(d.ack_id));
    if (ids.size() == 1000) h.Ack(std::exchange(ids, {})), h.Run(), h.log.DropDurable();
  }
  h.Ack(std::move(ids));
  h.Run();
  double acked = CpuSeconds();
  if (h.shard->GetFigures().backlog_messages != 0) std::printf("WRONG: messages are left\n");
  std::printf(
      "%d messages, answers of %d%s: grant %.0f ns, ack %.0f ns (of the grant: %.0f ns fake "
      "topic)\n",
      messages, batch, attribute ? ", event times" : "", (granted - start) / messages * 1e9,
      (acked - granted) / messages * 1e9, reading / messages * 1e9);
}

}  // namespace
}  // namespace millrace::pubsub

int main(int argc, char** argv) {
  int messages = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  int batch = argc > 2 ? std::atoi(argv[2]) : 1000;
  millrace::pubsub::BenchAckIds();
  millrace::pubsub::BenchDrain(messages, batch, false);
  millrace::pubsub::BenchDrain(messages, batch, true);
  millrace::pubsub::BenchDrain(messages, 1, false);
}
