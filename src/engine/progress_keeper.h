// The watermarks of all stages of a job.
#pragma once

#include <optional>
#include <vector>

#include "engine/plan.h"
#include "windowing/types.h"

namespace millrace::engine {

// Guarantee: watermarks only move forward, and a stage's input watermark passes a time only when no
// input up to it waits, runs or can still come from a producer. Single-threaded; owned by the job,
// told of every commit in commit order. It knows no elements: ranges tell their minima.
class ProgressKeeper {
 public:
  explicit ProgressKeeper(const Plan& plan);

  // Smallest timestamp of input that waits or runs; smallest hold.
  struct Bounds {
    std::optional<windowing::Millis> pending, hold;
  };
  void SetBounds(StageId stage, const Bounds& bounds) { stages_[stage.value].bounds = bounds; }
  // A source's own watermark; it never goes back.
  void AdvanceSource(StageId stage, windowing::Millis watermark);
  // What was durable when the job stopped.
  void SetFloor(StageId stage, windowing::Millis input, windowing::Millis output);

  // From the bounds to the watermarks, in order of the stages. True if any moved.
  bool Recompute();

  windowing::Millis input(StageId stage) const { return stages_[stage.value].input; }
  windowing::Millis output(StageId stage) const { return stages_[stage.value].output; }
  // Side windows that end up to here are complete, over all side inputs of the stage.
  windowing::Millis SideReady(StageId stage) const;
  bool AllAtMax() const;

 private:
  struct Stage {
    Bounds bounds;
    windowing::Millis own = windowing::kMinTimestamp;  // of a source or impulse
    windowing::Millis input = windowing::kMinTimestamp, output = windowing::kMinTimestamp;
    std::vector<uint32_t> producers;  // of its main input
    std::vector<uint32_t> side_producers;
    bool heads = false;  // has no main input
  };
  std::vector<Stage> stages_;
};

}  // namespace millrace::engine
