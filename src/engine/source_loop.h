// Pulls a native source, keeps duplicates out, acks what is committed, follows the source's
// watermark.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/bundle_commit.h"
#include "engine/messages.h"
#include "engine/source.h"
#include "engine/stage.h"

namespace millrace::engine {

// Guarantee: handles are acked only when their element, or the first element of their id, is in a
// durable commit. Single-threaded; owned by the job.
class SourceLoop {
 public:
  struct Parts {
    StageState* stage = nullptr;
    Source* source = nullptr;
    BundleCommit* commit = nullptr;
    ProgressKeeper* keeper = nullptr;
    Messages* messages = nullptr;
    const Clock* clock = nullptr;
    JobOptions options;
    std::function<Callback<void(SourceBatch)>(Callback<void(SourceBatch)>)> on_batch;
    std::function<Callback<void(Status)>(Callback<void(Status)>)> on_status;
    std::function<Callback<void(StatusOr<windowing::Millis>)>(
        Callback<void(StatusOr<windowing::Millis>)>)>
        on_watermark;
    std::function<void()> changed;
  };
  explicit SourceLoop(Parts parts) : parts_(std::move(parts)) {}

  // Pulls if there is room; asks for the watermark if it is time. `hold_back`: something behind
  // cannot keep up.
  void Pump(bool hold_back);
  std::optional<SteadyTime> NextTime() const;
  // `elements` of `range` are durable in its run `run`; `handles` are theirs and their duplicates'.
  void Ack(RangeShard& range, uint64_t run, std::vector<uint64_t> handles, size_t elements);
  void Drain();
  // Everything the source gave is committed and acked, and it will give no more.
  bool Finished() const { return NoMoreInput() && open_acks_ == 0; }
  bool NoMoreInput() const { return finished_ && outstanding_ == 0; }
  // Elements pulled and not committed.
  size_t outstanding() const { return outstanding_; }
  StageId stage() const { return parts_.stage->id; }
  void Stop() { parts_.source->Stop(); }
  void Release(std::vector<uint64_t> handles) { parts_.source->Release(std::move(handles)); }

 private:
  static constexpr Duration kWatermarkEvery = std::chrono::milliseconds(100);
  static constexpr Duration kWatermarkAtMost = std::chrono::milliseconds(5);  // after acks
  static constexpr size_t kPullBytes = 16 << 20;

  void Pull();
  void OnBatch(SourceBatch batch);
  void OnElement(SourceElement element);
  void AskWatermark();

  Parts parts_;
  bool pulling_ = false, asking_ = false, draining_ = false, finished_ = false;
  size_t outstanding_ = 0;
  size_t open_acks_ = 0;
  uint64_t spread_ = 0;
  SteadyTime ask_at_{}, asked_at_{};
  std::optional<SteadyTime> pull_at_;
};

}  // namespace millrace::engine
