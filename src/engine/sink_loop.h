// Writes what waits in one range of a sink stage, chunk by chunk.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/bundle_commit.h"
#include "engine/messages.h"
#include "engine/sink.h"
#include "engine/stage.h"

namespace millrace::engine {

// Guarantee: chunks are written in order, one at a time, only when durable, always as the same
// (producer, sequence); each is removed by a commit of its own after its write succeeded. So a
// write repeats only with its name. Single-threaded; owned by the job.
class SinkLoop {
 public:
  struct Parts {
    StageState* stage = nullptr;
    RangeShard* range = nullptr;
    Sink* sink = nullptr;
    BundleCommit* commit = nullptr;
    ProgressKeeper* keeper = nullptr;
    Messages* messages = nullptr;
    const Clock* clock = nullptr;
    std::string producer;
    JobOptions options;
    std::function<Callback<void(Status)>(Callback<void(Status)>)> on_executor;
    std::function<void()> changed;
  };
  explicit SinkLoop(Parts parts) : parts_(std::move(parts)) {}

  void Pump();
  std::optional<SteadyTime> NextTime() const { return retry_at_; }
  bool Idle() const { return !writing_; }

 private:
  void OnWritten(uint64_t chunk, uint32_t size, Status status);

  Parts parts_;
  bool writing_ = false;
  Duration back_off_{};
  std::optional<SteadyTime> retry_at_;
};

}  // namespace millrace::engine
