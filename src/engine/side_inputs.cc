#include "engine/side_inputs.h"

#include <algorithm>
#include <map>

#include "engine/state.h"
#include "windowing/wire.h"

namespace millrace::engine {

using windowing::Millis;

Millis SideNeeded(const StageSpec& spec, const windowing::Window& main) {
  Millis needed = INT64_MIN;
  for (const SideInputSpec& side : spec.side_inputs) {
    const windowing::WindowList windows =
        windowing::AssignWindows(side.strategy.window_fn, main.MaxTimestamp());
    Millis end = windows.empty() ? main.MaxTimestamp() : windows[0].MaxTimestamp();
    for (const windowing::Window& window : windows) end = std::min(end, window.MaxTimestamp());
    needed = std::max(needed, end);
  }
  return needed;
}

void AppendSideRows(const PackedChunk& chunk, uint64_t job, StageId stage, size_t index,
                    bool multimap, const std::string& chunk_name, storage::WriteBatch& batch) {
  const std::string prefix = SideInputPrefix(job, stage, index);
  std::map<std::string, std::string> rows;
  windowing::Header header;
  for (size_t i = 0; i < chunk.size(); ++i) {
    if (!chunk.ReadHeader(i, &header)) continue;
    for (const windowing::Window& window : header.windows) {
      std::string row = prefix, encoded;
      windowing::AppendWindow(encoded, window);
      storage::PutString(row, encoded);
      if (multimap) storage::PutString(row, chunk.Key(i));
      row += chunk_name;
      rows[row].append(multimap ? chunk.KvValue(i) : chunk.Value(i));
    }
  }
  for (const auto& [row, values] : rows) batch.Put(storage::Table::kState, row, values);
}

}  // namespace millrace::engine
