#include "engine/progress_keeper.h"

#include <algorithm>

#include "windowing/watermark.h"

namespace millrace::engine {

using windowing::kMaxTimestamp;
using windowing::Millis;

ProgressKeeper::ProgressKeeper(const Plan& plan) : stages_(plan.stages.size()) {
  std::vector<std::vector<uint32_t>> producers(plan.collections.size());
  for (uint32_t s = 0; s < plan.stages.size(); ++s) {
    for (CollectionId output : plan.stages[s].outputs) producers[output.value].push_back(s);
  }
  const auto add = [&producers](std::vector<uint32_t>& to, CollectionId collection) {
    to.insert(to.end(), producers[collection.value].begin(), producers[collection.value].end());
  };
  for (uint32_t s = 0; s < plan.stages.size(); ++s) {
    const StageSpec& spec = plan.stages[s];
    Stage& stage = stages_[s];
    stage.heads = spec.input == InputKind::kImpulse || spec.input == InputKind::kSource;
    if (spec.input == InputKind::kImpulse) stage.own = kMaxTimestamp;
    for (CollectionId input : spec.inputs) add(stage.producers, input);
    for (const SideInputSpec& side : spec.side_inputs) add(stage.side_producers, side.collection);
  }
}

void ProgressKeeper::AdvanceSource(StageId stage, Millis watermark) {
  windowing::Advance(stages_[stage.value].own, watermark);
}

void ProgressKeeper::SetFloor(StageId stage, Millis input, Millis output) {
  windowing::Advance(stages_[stage.value].input, input);
  windowing::Advance(stages_[stage.value].output, output);
}

bool ProgressKeeper::Recompute() {
  bool moved = false;
  for (Stage& stage : stages_) {
    Millis upstream = stage.heads ? stage.own : kMaxTimestamp;
    if (!stage.heads) {
      for (uint32_t producer : stage.producers)
        upstream = std::min(upstream, stages_[producer].output);
    }
    std::optional<Millis> pending = stage.bounds.pending;
    if (pending)
      pending = std::min(*pending, kMaxTimestamp - 1);  // something waits: not at the end of time
    moved |= windowing::Advance(stage.input, windowing::InputWatermark(upstream, pending));
    moved |= windowing::Advance(stage.output,
                                windowing::OutputWatermark(stage.input, stage.bounds.hold));
  }
  return moved;
}

Millis ProgressKeeper::SideReady(StageId id) const {
  Millis ready = INT64_MAX;
  for (uint32_t producer : stages_[id.value].side_producers) {
    const Millis watermark = stages_[producer].output;
    ready = std::min(ready, watermark >= kMaxTimestamp ? INT64_MAX : watermark - 1);
  }
  return ready;
}

bool ProgressKeeper::AllAtMax() const {
  return std::all_of(stages_.begin(), stages_.end(),
                     [](const Stage& stage) { return stage.output >= kMaxTimestamp; });
}

}  // namespace millrace::engine
