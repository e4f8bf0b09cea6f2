#include "engine/source_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "windowing/types.h"

namespace millrace::engine {

void SourceLoop::Pump(bool hold_back) {
  const SteadyTime now = parts_.clock->SteadyNow();
  if (!asking_ && now >= ask_at_ && !finished_) AskWatermark();
  const size_t limit = parts_.options.bundle_elements_max * 4;
  if (pulling_ || finished_ || (pull_at_ && now < *pull_at_)) return;
  if (hold_back && !draining_) return;
  if (outstanding_ >= limit) return;
  Pull();
}

void SourceLoop::Pull() {
  pulling_ = true;
  pull_at_.reset();
  const size_t room = parts_.options.bundle_elements_max * 4 -
                      std::min(outstanding_, parts_.options.bundle_elements_max * 4);
  parts_.source->Pull(std::max<size_t>(room, 1), kPullBytes,
                      parts_.on_batch([this](SourceBatch batch) { OnBatch(std::move(batch)); }));
}

void SourceLoop::OnBatch(SourceBatch batch) {
  pulling_ = false;
  if (!batch.status.ok()) {
    parts_.messages->Tell(Importance::kWarning,
                          fmt::format("{} cannot read and tries again: {}",
                                      parts_.stage->spec->name, MessageOf(batch.status)));
    pull_at_ = parts_.clock->SteadyNow() + std::chrono::seconds(1);
  }
  for (SourceElement& element : batch.elements) OnElement(std::move(element));
  if (batch.finished) finished_ = true;
  parts_.changed();
}

void SourceLoop::OnElement(SourceElement element) {
  auto pending = std::make_unique<SourcePending>();
  pending->has_id = !element.dedup_id.empty();
  pending->handles.push_back(element.handle);
  uint64_t spread = spread_++;
  if (pending->has_id) {
    pending->id = HashId(element.dedup_id);
    spread = pending->id.high;
  }
  RangeShard& range = *parts_.stage->ranges[spread % parts_.stage->ranges.size()];
  if (pending->has_id) {
    const DedupTable::Verdict verdict = range.dedup().Look(pending->id);
    if (verdict.seen == DedupTable::Seen::kInFlight) {
      verdict.first->handles.push_back(element.handle);
      return;
    }
    if (verdict.seen == DedupTable::Seen::kCommitted) {
      parts_.commit->Barrier([this, &range, run = verdict.run, handle = element.handle] {
        Ack(range, run, {handle}, 0);
      });
      return;
    }
  }
  ++outstanding_;
  pending->element = std::move(element);
  range.Offer(std::move(pending));
}

void SourceLoop::Ack(RangeShard& range, uint64_t run, std::vector<uint64_t> handles,
                     size_t elements) {
  outstanding_ -= std::min(outstanding_, elements);
  range.dedup().AckAsked(run);
  ++open_acks_;
  parts_.source->Ack(std::move(handles), parts_.on_status([this, &range, run](Status status) {
    --open_acks_;
    if (status.ok()) {
      range.dedup().AckDone(run);
      ask_at_ = std::min(ask_at_, asked_at_ + kWatermarkAtMost);
    } else {
      range.dedup().AckFailed(run);
      parts_.messages->Tell(
          Importance::kWarning,
          fmt::format("{} could not acknowledge: {}", parts_.stage->spec->name, MessageOf(status)));
    }
    parts_.changed();
  }));
}

void SourceLoop::AskWatermark() {
  asking_ = true;
  asked_at_ = parts_.clock->SteadyNow();
  ask_at_ = asked_at_ + kWatermarkEvery;
  parts_.source->Watermark(parts_.on_watermark([this](StatusOr<windowing::Millis> watermark) {
    asking_ = false;
    if (watermark.ok() && !finished_) {
      parts_.keeper->AdvanceSource(parts_.stage->id,
                                   std::min(*watermark, windowing::kMaxTimestamp - 1));
    }
    parts_.changed();  // the next turn sets the timer for the next question
  }));
}

void SourceLoop::Drain() {
  if (draining_) return;
  draining_ = true;
  parts_.source->Drain();
}

std::optional<SteadyTime> SourceLoop::NextTime() const {
  if (finished_) return std::nullopt;
  if (pull_at_ && *pull_at_ < ask_at_) return pull_at_;
  return asking_ ? std::nullopt : std::optional<SteadyTime>(ask_at_);
}

}  // namespace millrace::engine
