// Side inputs: collections materialised by window (and key) for the transforms that look things up
// in them.
#pragma once

#include <string>
#include <vector>

#include "engine/chunk.h"
#include "engine/plan.h"
#include "storage/store.h"

namespace millrace::engine {

// Rows of the elements of `chunk` as side input `index` of a stage, into `batch`. `chunk_name`
// names the chunk for ever (sending shard and record, place in the record), so that writing them
// again changes nothing.
void AppendSideRows(const PackedChunk& chunk, uint64_t job, StageId stage, size_t index,
                    bool multimap, const std::string& chunk_name, storage::WriteBatch& batch);

// How far the watermarks of the stage's side inputs must be before elements in `main` may be
// processed.
windowing::Millis SideNeeded(const StageSpec& spec, const windowing::Window& main);

}  // namespace millrace::engine
