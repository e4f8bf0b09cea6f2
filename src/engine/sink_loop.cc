#include "engine/sink_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace::engine {

void SinkLoop::Pump() {
  if (writing_ || (retry_at_ && parts_.clock->SteadyNow() < *retry_at_)) return;
  StoredChunk* chunk = parts_.range->fifo().Front();
  if (chunk == nullptr || chunk->ordinal > parts_.commit->durable_ordinal()) return;
  const std::shared_ptr<const PackedChunk> body = parts_.range->chunks().Body(chunk);
  if (!body) return;
  retry_at_.reset();
  writing_ = true;
  struct Unpacked {
    std::shared_ptr<const PackedChunk> body;
    Chunk chunk;
  };
  auto unpacked = std::make_shared<Unpacked>(Unpacked{body, body->Unpack()});
  parts_.sink->Write(
      parts_.producer, chunk->number, std::shared_ptr<const Chunk>(unpacked, &unpacked->chunk),
      parts_.on_executor([this, number = chunk->number, size = chunk->size](Status status) {
        OnWritten(number, size, std::move(status));
      }));
}

void SinkLoop::OnWritten(uint64_t chunk, uint32_t size, Status status) {
  writing_ = false;
  if (!status.ok()) {
    back_off_ = std::clamp(back_off_ * 2, parts_.options.park_min, parts_.options.park_max);
    retry_at_ = parts_.clock->SteadyNow() + back_off_;
    parts_.messages->Tell(Importance::kWarning,
                          fmt::format("{} cannot write and tries again: {}",
                                      parts_.stage->spec->name, MessageOf(status)));
    parts_.changed();
    return;
  }
  back_off_ = {};
  parts_.range->fifo().PopFront();
  parts_.stage->elements_in += size;
  ++parts_.stage->bundles;
  std::vector<RangeRecord> records(1);
  records[0].range = parts_.range;
  records[0].record.input_watermark = parts_.keeper->input(parts_.stage->id);
  records[0].record.output_watermark = parts_.keeper->output(parts_.stage->id);
  records[0].record.consumed.push_back({chunk, 0, size});
  parts_.commit->Commit(std::move(records), [] {});
  parts_.changed();
}

}  // namespace millrace::engine
