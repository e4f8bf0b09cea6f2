// Scan and stamp rates, against memcpy and against the generated class. Prints one line a case.
#include <fmt/format.h>
#include <time.h>

#include <cstring>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/topic/entry_body.h"
#include "pubsub/topic/publish_scanner.h"

namespace {

using millrace::WallTime;
using millrace::pubsub::ScanPublishRequest;

// CPU time of this thread: other load does not count.
double CpuNanos() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

template <typename F>
double NanosPerCall(F call) {
  for (int i = 0; i < 20; ++i) call();
  int calls = 0;
  double start = CpuNanos(), elapsed = 0;
  while (elapsed < 3e8) {
    for (int i = 0; i < 20; ++i) call();
    calls += 20;
    elapsed = CpuNanos() - start;
  }
  return elapsed / calls;
}

void Run(const char* name, size_t data_bytes, int messages, int attributes) {
  google::pubsub::v1::PublishRequest request;
  request.set_topic("projects/p/topics/t");
  for (int i = 0; i < messages; ++i) {
    auto* message = request.add_messages();
    message->set_data(std::string(data_bytes, 'd'));
    for (int a = 0; a < attributes; ++a) {
      (*message->mutable_attributes())["attribute" + std::to_string(a)] = "value of it";
    }
  }
  std::string wire = request.SerializeAsString();
  double scan = NanosPerCall([&] {
    auto scanned = ScanPublishRequest(wire);
    auto body =
        std::move(*scanned).Stamp(millrace::pubsub::kMessageIdMin, WallTime{1'800'000'000'000'000});
  });
  std::string copy(wire.size(), 0);
  double memory = NanosPerCall([&] {
    std::memcpy(copy.data(), wire.data(), wire.size());
    asm volatile("" ::"r"(copy.data()) : "memory");
  });
  double generated = NanosPerCall([&] {
    google::pubsub::v1::PublishRequest parsed;
    parsed.ParseFromString(wire);
    std::string out;
    parsed.SerializeToString(&out);
  });
  fmt::print(
      "{:24} scan+stamp {:7.1f} ns/message {:6.2f} GB/s   memcpy {:6.2f} GB/s   generated class "
      "{:6.2f} GB/s\n",
      name, scan / messages, wire.size() / scan, wire.size() / memory, wire.size() / generated);
}

}  // namespace

int main() {
  Run("100 B x 1000", 100, 1000, 0);
  Run("100 B x 1000, 2 attrs", 100, 1000, 2);
  Run("1 KB x 100", 1000, 100, 0);
  Run("1 KB x 100, 2 attrs", 1000, 100, 2);
  Run("10 KB x 100", 10'000, 100, 0);
}
