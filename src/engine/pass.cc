#include "engine/pass.h"

namespace millrace::engine {
namespace {

// One element written by the engine itself: its bytes are behind `begin` in `out`.
void AddWritten(PackedChunk& chunk, const std::string& out, size_t begin, size_t header, size_t key,
                windowing::Millis timestamp) {
  Border border;
  border.begin = static_cast<uint32_t>(begin);
  border.header = static_cast<uint32_t>(header);
  border.key = static_cast<uint32_t>(key);
  border.value = static_cast<uint32_t>(out.size() - begin - header - key);
  chunk.Add(border, timestamp);
}

// Copies the items' elements into `out`, with their borders.
Status CopyItems(const std::vector<Item>& items, std::string& out, PackedChunk& chunk) {
  const auto copy = [&out, &chunk](ChunkTable& chunks, const Ref& ref) -> Status {
    const std::shared_ptr<const PackedChunk> body = chunks.Body(ref.chunk);
    if (!body) return DataLoss("engine: pending elements are missing in the store");
    const Border from = body->borders()[ref.index];
    const size_t begin = out.size();
    out.append(body->Encoded(ref.index));
    AddWritten(chunk, out, begin, from.header, from.key, body->Timestamp(ref.index));
    const Element element = body->At(ref.index);
    if (!element.windows.empty() && element.windows[0].kind == windowing::WindowKind::kCustom) {
      chunk.AddCustom({element.windows, element.pane});
    }
    return OkStatus();
  };
  for (const Item& item : items) {
    ChunkTable& chunks = item.range->chunks();
    const size_t begin = out.size();
    if (const auto* run = std::get_if<Run>(&item.work)) {
      for (uint32_t i = 0; i < run->count; ++i)
        MR_RETURN_IF_ERROR(copy(chunks, {run->chunk, run->first + i}));
    } else if (const auto* batch = std::get_if<KeyBatch>(&item.work)) {
      for (const Ref& ref : batch->refs) MR_RETURN_IF_ERROR(copy(chunks, ref));
    } else if (const auto* pane = std::get_if<CellPane>(&item.work)) {
      windowing::AppendHeader(out, pane->timestamp, pane->window, pane->pane);
      const size_t header = out.size() - begin;
      out.resize(begin);
      MR_RETURN_IF_ERROR(EncodePane(*pane, chunks, out));
      AddWritten(chunk, out, begin, header, pane->fired.key.size(), pane->timestamp);
      if (pane->window.kind == windowing::WindowKind::kCustom)
        chunk.AddCustom({{pane->window}, pane->pane});
    } else if (const auto* source = std::get_if<std::unique_ptr<SourcePending>>(&item.work)) {
      const SourceElement& element = (*source)->element;
      windowing::AppendHeader(out, element.timestamp, windowing::Window::Global(),
                              windowing::Pane::NoFiring());
      const size_t header = out.size() - begin;
      out.append(element.value.view());
      AddWritten(chunk, out, begin, header, 0, element.timestamp);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<PackedChunk>> PassThrough(const std::vector<Item>& items,
                                               const StageSpec& spec, const Plan& plan) {
  std::vector<PackedChunk> outputs;
  if (spec.outputs.empty()) return outputs;
  const windowing::WindowKind kind = plan.collections[spec.outputs.front().value].window_kind;
  std::string bytes;
  PackedChunk layout(spec.outputs.front(), kind, SharedBytes());
  MR_RETURN_IF_ERROR(CopyItems(items, bytes, layout));
  if (layout.empty()) return outputs;
  const SharedBytes shared(std::move(bytes));
  for (CollectionId output : spec.outputs) outputs.push_back(layout.Moved(output, shared));
  return outputs;
}

}  // namespace millrace::engine
