// Everything durable or derived that an ack changes, changed in one place: at run time and at
// recovery alike.
#pragma once

#include <memory>
#include <vector>

#include "pubsub/subscription/ack_blocks.h"
#include "pubsub/subscription/block_summaries.h"
#include "pubsub/subscription/event_times.h"
#include "pubsub/subscription/records.h"

namespace millrace::pubsub {

// Belongs to one subscription shard and its executor.
struct AckState {
  explicit AckState(uint64_t start) : blocks(start), summaries(start) {}

  // Applies a run; `newly` gets what of it was not acked before, in the form to be recorded.
  void Apply(const AckedRun& run, FunctionRef<void(const AckedRun&)> newly) {
    blocks.Ack(run.first, run.count, [&](uint64_t first, uint64_t count) {
      AckedRun fresh{first, count, count == run.count ? run.bytes : AckedRun::kUnknownBytes};
      summaries.OnAcked(fresh);
      for (auto& times : event_times) times->OnAcked(first, count);
      acked += count;
      newly(fresh);
    });
    summaries.OnCursor(blocks.cursor());
  }

  AckBlocks blocks;
  BlockSummaries summaries;
  std::vector<std::unique_ptr<EventTimes>> event_times;  // one for each registered attribute
  uint64_t acked = 0;                                    // since the start of the process
};

}  // namespace millrace::pubsub
