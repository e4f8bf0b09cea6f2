#include "storage/commit_log/disk_log.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "storage/commit_log/entry_cache.h"
#include "storage/commit_log/recovery.h"
#include "storage/commit_log/segment_table.h"
#include "storage/commit_log/spares.h"
#include "storage/commit_log/writer.h"

namespace millrace::storage {
namespace {

// Thread-safe. Only wires the parts together; each does its own work on its own thread.
class SegmentedLog : public DiskLog {
 public:
  SegmentedLog(const DiskLogOptions& options, uint64_t next_number)
      : table_(options.index_cache_bytes),
        cache_(options.entry_cache_bytes),
        spares_(options.files, {options.directory, options.segment_bytes, options.min_free_bytes},
                next_number) {}

  // The threads stop before what they use goes; nothing is written any more (unless Close was
  // called, which has written all).
  ~SegmentedLog() override {
    if (reclaimer_) reclaimer_->Stop();
    writer_.reset();
    spares_.Stop();
    reclaimer_.reset();
  }

  Status Start(const DiskLogOptions& options, RecoveredLog recovered);

  void Append(std::vector<Record> records, Task on_durable) override {
    writer_->Append(std::move(records), std::move(on_durable));
  }
  bool HasRoomToGrow() const override { return spares_.HasRoomToGrow(); }
  Status Replay(Lsn from, FunctionRef<Status(Lsn, const Record&)> visit) override;
  StatusOr<std::vector<TopicEntry>> ReadEntries(TopicPartition partition, uint64_t offset,
                                                size_t max_bytes) override {
    if (auto recent = cache_.Read(partition, offset, max_bytes)) return *std::move(recent);
    MR_ASSIGN_OR_RETURN(auto found, table_.Find(partition, offset, max_bytes));
    return SegmentTable::ReadBodies(partition, found);
  }
  bool TryReadEntries(TopicPartition partition, uint64_t offset, size_t max_bytes,
                      std::vector<TopicEntry>* out) override {
    out->clear();
    if (auto recent = cache_.Read(partition, offset, max_bytes)) {
      *out = *std::move(recent);
      return true;
    }
    return !table_.Holds(partition, offset);
  }
  void TruncateBefore(Lsn lsn) override { reclaimer_->SetReplayPosition(lsn); }
  void SetLiveness(std::shared_ptr<Liveness> liveness) override {
    reclaimer_->SetLiveness(std::move(liveness));
  }
  void MayHaveDied() override { reclaimer_->MayHaveDied(); }
  void SyncNow() override { writer_->SyncNow(); }

  LogStats Stats() const override {
    SegmentTable::Totals totals = table_.Sum();
    return {writer_->durable_end(), totals.disk_bytes + spares_.DiskBytes(), totals.live_bytes,
            writer_->groups()};
  }

  void Close() override {
    reclaimer_->Stop();  // it appends
    writer_->Close();
    spares_.Stop();
  }

 private:
  mutable SegmentTable table_;
  EntryCache cache_;
  SpareSegments spares_;
  std::unique_ptr<LogWriter> writer_;
  std::unique_ptr<SpaceReclaimer> reclaimer_;
};

// What the replay position needs must be there.
Status CheckWhole(const RecoveredLog& recovered, const DiskLogOptions& options) {
  if (recovered.end < options.replay_position) {
    return DataLoss(fmt::format(
        "{}: the log ends at {}, before the store's last checkpoint at {}: segments are missing",
        options.directory, recovered.end, options.replay_position));
  }
  Lsn whole_to = options.replay_position;
  for (const SegmentPtr& segment : recovered.segments) {
    if (segment->base + segment->capacity <= options.replay_position) continue;
    // Nothing after the replay position may be in a segment that is gone.
    if (segment->base > whole_to && segment->previous_end > whole_to) {
      return DataLoss(fmt::format("{}: the segment that holds place {} of the log is missing",
                                  options.directory, whole_to));
    }
    whole_to = segment->data_end;
  }
  return OkStatus();
}

Status SegmentedLog::Start(const DiskLogOptions& options, RecoveredLog recovered) {
  LogWriter::Start start;
  start.segment = recovered.current;
  start.next_base = recovered.next_base;
  start.end = recovered.end;
  for (SegmentPtr& segment : recovered.segments) table_.Add(std::move(segment));
  for (SegmentFile& spare : recovered.spares) spares_.Recycle(std::move(spare));
  bool empty = recovered.segments.empty();
  if (empty && spares_.DiskBytes() == 0) {
    MR_ASSIGN_OR_RETURN(SegmentFile first, spares_.MakeFirst());
    spares_.Offer(std::move(first));
  }
  writer_ = std::make_unique<LogWriter>(table_, cache_, spares_,
                                        LogWriter::Options{options.durability, recovered.boot},
                                        std::move(start), [this] {
                                          if (reclaimer_) reclaimer_->Wake();
                                        });
  reclaimer_ = std::make_unique<SpaceReclaimer>(table_, *writer_, spares_, options.reclaim);
  reclaimer_->SetReplayPosition(options.replay_position);
  for (SegmentPtr& unsealed : recovered.unsealed) writer_->Seal(std::move(unsealed));
  return OkStatus();
}

Status SegmentedLog::Replay(Lsn from, FunctionRef<Status(Lsn, const Record&)> visit) {
  for (const SegmentPtr& segment : table_.All()) {
    if (segment->data_end <= from) continue;
    uint64_t offset = from > segment->base ? std::max(from - segment->base, kSegmentHeaderBytes)
                                           : kSegmentHeaderBytes;
    uint64_t end = segment->data_end - segment->base;
    FrameScanner scanner(*segment->file, segment->base, offset, end);
    while (scanner.offset() < end) {
      MR_ASSIGN_OR_RETURN(bool found, scanner.Next());
      if (!found) {
        return DataLoss(fmt::format("{} is damaged at byte {}", segment->path, scanner.offset()));
      }
      for (const FrameItem& item : scanner.items()) {
        if (!item.is_record) continue;
        SharedBytes frame(scanner.buffer(), item.payload);
        Record record{item.shard, item.seq, frame, item.entry};
        if (record.entry) record.entry->body = frame.Sub(item.body);
        MR_RETURN_IF_ERROR(visit(scanner.header().lsn, record));
      }
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<DiskLog>> OpenDiskLog(const DiskLogOptions& options) {
  MR_RETURN_IF_ERROR(options.files->MakeDirectory(options.directory));
  MR_ASSIGN_OR_RETURN(RecoveredLog recovered, RecoverLog(*options.files, options.directory));
  MR_RETURN_IF_ERROR(CheckWhole(recovered, options));
  auto log = std::make_unique<SegmentedLog>(options, recovered.next_number);
  MR_RETURN_IF_ERROR(log->Start(options, std::move(recovered)));
  return std::unique_ptr<DiskLog>(std::move(log));
}

}  // namespace millrace::storage
