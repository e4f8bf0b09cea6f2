// What publishers and receivers of one run share: clock, lanes, channels, the measured window.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options.h"

namespace millrace::load {

inline uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}
inline void SleepUntilNs(uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1000000000ull), static_cast<long>(ns % 1000000000ull)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}
inline gpr_timespec InMs(int ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

// A lane is a sequence of messages that one publish slot alone sends: its numbers have no gap.
struct Lane {
  int topic = 0;
  std::string key;
  uint64_t next = 0;
  std::vector<std::pair<uint64_t, uint64_t>>
      failed;  // [first, count) of publishes that got an error
};

struct Shared {
  Options o;
  uint32_t run = 0;
  std::vector<std::string> topics;
  std::vector<std::string> subs;  // subs[topic * subscriptions + k]
  std::vector<Lane> lanes;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::atomic<uint64_t> window_start{UINT64_MAX}, window_end{UINT64_MAX};
  bool InWindow(uint64_t t) const {
    return t >= window_start.load(std::memory_order_relaxed) &&
           t < window_end.load(std::memory_order_relaxed);
  }
};

inline std::shared_ptr<grpc::Channel> NewChannel(const Options& o, int i) {
  grpc::ChannelArguments a;
  a.SetMaxReceiveMessageSize(-1);
  a.SetMaxSendMessageSize(-1);
  a.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  a.SetInt("pubsub_load.channel", i);
  return grpc::CreateCustomChannel(o.endpoint, grpc::InsecureChannelCredentials(), a);
}

inline void Contiguous(grpc::ByteBuffer& b, grpc::Slice& hold) {
  if (!b.TrySingleSlice(&hold).ok()) b.DumpToSingleSlice(&hold);
}
inline std::string_view View(const grpc::Slice& s) {
  return {reinterpret_cast<const char*>(s.begin()), s.size()};
}

}  // namespace millrace::load
