// Publishing through the broker without its doors: rate, and CPU time of the whole process per
// message (which other load on the machine does not change much). Arguments: directory ("" for
// memory), bytes, messages a call, calls in flight, seconds.
#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <string>

#include "pubsub/broker.h"
#include "storage/open.h"

namespace millrace::pubsub {
namespace {

constexpr char kTopic[] = "projects/p/topics/t-1";

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Calls in flight, each started anew by its answer. Requests are copied, as they would come out of
// a socket.
struct Load {
  Broker* broker;
  std::string request;
  std::atomic<uint64_t> answered{0};
  std::atomic<bool> stop{false};
  std::atomic<int> open{0};
  std::promise<void> ended;

  void Send() {
    ++open;
    broker->Publish(SharedBytes(std::string(request)), [this](StatusOr<PublishResult> result) {
      if (!result.ok()) std::abort();
      answered += result->count;
      if (!stop) Send();
      if (--open == 0) ended.set_value();
    });
  }
};

template <typename T, typename Call>
void Get(Call call) {
  std::promise<bool> answer;
  call([&](StatusOr<T> value) { answer.set_value(value.ok()); });
  if (!answer.get_future().get()) std::abort();
}

int Main(const std::string& directory, size_t bytes, int messages, int in_flight, int seconds) {
  SystemClock clock;
  ThreadPool pool(2, "shards"), blocking(1, "blocking");
  ThreadTimers timers(clock);
  storage::OpenOptions open;
  open.directory = directory;
  std::unique_ptr<storage::Storage> storage =
      directory.empty() ? storage::OpenInMemory() : storage::OpenDirectory(open).value();
  auto broker = Broker::Load({storage.get(), &clock, &timers, &pool, &blocking, 1}, {}).value();
  broker->Start();
  pb::Topic topic;
  topic.set_name(kTopic);
  Get<pb::Topic>([&](auto reply) { broker->CreateTopic(topic, std::move(reply)); });
  pb::Subscription subscription;
  subscription.set_name("projects/p/subscriptions/s-1");
  subscription.set_topic(kTopic);
  Get<pb::Subscription>(
      [&](auto reply) { broker->CreateSubscription(subscription, std::move(reply)); });
  pb::PublishRequest request;
  request.set_topic(kTopic);
  for (int i = 0; i < messages; ++i) request.add_messages()->set_data(std::string(bytes, 'd'));
  Load load{broker.get(), request.SerializeAsString()};
  double cpu = CpuSeconds();
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < in_flight; ++i) load.Send();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  load.stop = true;
  load.ended.get_future().wait();
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  cpu = CpuSeconds() - cpu;
  double count = static_cast<double>(load.answered);
  fmt::print("{} B x {}, {} in flight: {:.0f} messages/s, {:.3f} us CPU a message, {} groups\n",
             bytes, messages, in_flight, count / wall, cpu / count * 1e6,
             storage->log->Stats().groups);
  broker->Stop();
  bool closed = storage->Close().ok();
  broker.reset();
  return closed ? 0 : 1;
}

}  // namespace
}  // namespace millrace::pubsub

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: broker_bench DIRECTORY BYTES MESSAGES IN_FLIGHT SECONDS\n");
    return 2;
  }
  return millrace::pubsub::Main(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                                std::atoi(argv[5]));
}
