#include "pubsub/subscription/ack_recorder.h"

#include "pubsub/subscription/ack_blocks.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kRunsMax = 65536;  // bounds a record

}  // namespace

void AckRecorder::Add(const AckedRun& run) {
  if (!runs_.empty()) {
    // Neighbours melt, but never across a block's border: the sizes of a run must belong to one
    // block.
    AckedRun& last = runs_.back();
    if (last.first + last.count == run.first && last.bytes != AckedRun::kUnknownBytes &&
        run.bytes != AckedRun::kUnknownBytes &&
        last.first / AckBlocks::kBlock == (run.first + run.count - 1) / AckBlocks::kBlock) {
      last.count += run.count;
      last.bytes += run.bytes;
      return;
    }
  }
  runs_.push_back(run);
  if (runs_.size() >= kRunsMax) return Flush();
  ScheduleFlush();
}

void AckRecorder::Add(StatusReply reply) {
  replies_.push_back(std::move(reply));
  ScheduleFlush();
}

// Behind what is queued for this turn already, so that it all goes into one record.
void AckRecorder::ScheduleFlush() {
  if (scheduled_) return;
  scheduled_ = true;
  context_.executor().Post(context_.WhileAlive([this] {
    scheduled_ = false;
    Flush();
  }));
}

void AckRecorder::Flush() {
  if (runs_.empty() && replies_.empty()) return;
  std::vector<storage::Record> records;
  if (!runs_.empty()) {
    storage::Record& record = records.emplace_back();
    record.shard = {storage::ShardKind::kSubscription, context_.environment.uid.value};
    record.seq = ++seq_;
    record.payload = SharedBytes(EncodeAcksRecord(runs_));
    runs_.clear();
    MarkDirty();
  }
  Task on_durable = [] {};
  if (!replies_.empty()) {
    // The log's thread only posts; replies run here.
    on_durable = [context = &context_, self = context_.self,
                  replies = std::move(replies_)]() mutable {
      auto alive = self.lock();
      if (alive == nullptr) return;
      context->executor().Post([replies = std::move(replies)]() mutable {
        for (StatusReply& reply : replies) reply(OkStatus());
      });
    };
    replies_.clear();
  }
  context_.environment.log->Append(std::move(records), std::move(on_durable));
}

void AckRecorder::MarkDirty() {
  if (dirty_ || context_.environment.checkpointer == nullptr) return;
  dirty_ = true;
  if (auto self = context_.self.lock()) context_.environment.checkpointer->MarkDirty(self);
}

}  // namespace millrace::pubsub
