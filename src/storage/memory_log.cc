#include "storage/memory_log.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace millrace::storage {

struct MemoryLogContents {
  struct PlacedEntry {
    Lsn lsn;
    TopicEntry entry;
  };
  struct PlacedRecord {
    Lsn lsn;
    Record record;
  };
  Mutex mutex;
  Lsn end MR_GUARDED_BY(mutex) = 0;
  Lsn called_back_end MR_GUARDED_BY(mutex) = 0;  // all callbacks below have run
  std::deque<PlacedRecord> records MR_GUARDED_BY(mutex);
  std::map<TopicPartition, std::map<uint64_t, PlacedEntry>> entries MR_GUARDED_BY(mutex);
  uint64_t entry_bytes MR_GUARDED_BY(mutex) = 0;
};

std::shared_ptr<MemoryLogContents> MakeMemoryLogContents() {
  return std::make_shared<MemoryLogContents>();
}

namespace {

constexpr uint64_t kFrameOverhead = 32;

// Everything a commit task needs; outlives the log while a task is queued.
struct LogCore {
  struct Pending {
    std::vector<Record> records;
    Task on_durable;
  };

  explicit LogCore(Executor* executor_in, std::shared_ptr<MemoryLogContents> contents_in,
                   bool keep_records_in)
      : executor(executor_in), contents(std::move(contents_in)), keep_records(keep_records_in) {}

  Executor* executor;
  const std::shared_ptr<MemoryLogContents> contents;
  const bool keep_records;

  Mutex mutex;
  std::vector<Pending> pending MR_GUARDED_BY(mutex);
  bool scheduled MR_GUARDED_BY(mutex) = false;
  bool closed MR_GUARDED_BY(mutex) = false;
  std::shared_ptr<Liveness> liveness MR_GUARDED_BY(mutex);
  bool may_have_died MR_GUARDED_BY(mutex) = false;
  bool counting MR_GUARDED_BY(mutex) = false;
  uint64_t groups MR_GUARDED_BY(mutex) = 0;
  uint64_t appended_since_scan MR_GUARDED_BY(mutex) = 0;
  uint64_t scan_after MR_GUARDED_BY(mutex) = 4 << 20;
};

// Returns the new end.
Lsn Keep(LogCore& core, std::vector<LogCore::Pending>& group) {
  uint64_t entry_bytes = 0;
  Lsn end = 0;
  {
    MemoryLogContents& contents = *core.contents;
    MutexLock lock(contents.mutex);
    for (LogCore::Pending& pending : group) {
      if (pending.records.empty()) continue;
      for (Record& record : pending.records) {
        uint64_t size = record.payload.size() + kFrameOverhead;
        if (record.entry) {
          const TopicEntry& entry = *record.entry;
          size += entry.body.size();
          entry_bytes += entry.body.size();
          contents.entries[entry.partition].insert_or_assign(
              entry.first_offset, MemoryLogContents::PlacedEntry{contents.end, entry});
        }
        if (core.keep_records) contents.records.push_back({contents.end, std::move(record)});
        contents.end += size;
      }
    }
    contents.entry_bytes += entry_bytes;
    end = contents.end;
  }
  MutexLock lock(core.mutex);
  ++core.groups;
  core.appended_since_scan += entry_bytes;
  return end;
}

// Removes the entries of which nothing lives.
void Drop(LogCore& core, const std::vector<TopicEntry>& asked, const std::vector<uint32_t>& live) {
  uint64_t left = 0;
  {
    MemoryLogContents& contents = *core.contents;
    MutexLock lock(contents.mutex);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (live[i] > 0) continue;
      auto partition = contents.entries.find(asked[i].partition);
      if (partition == contents.entries.end()) continue;
      auto entry = partition->second.find(asked[i].first_offset);
      if (entry == partition->second.end()) continue;
      contents.entry_bytes -= entry->second.entry.body.size();
      partition->second.erase(entry);
      if (partition->second.empty()) contents.entries.erase(partition);
    }
    left = contents.entry_bytes;
  }
  MutexLock lock(core.mutex);
  core.counting = false;
  core.scan_after = std::max<uint64_t>(4 << 20, left / 2);
}

// Asks about all entries when enough was added since the last time that the scan is paid for by it.
void MayScan(const std::shared_ptr<LogCore>& core) {
  std::shared_ptr<Liveness> liveness;
  {
    MutexLock lock(core->mutex);
    if (!core->liveness || !core->may_have_died || core->counting || core->closed ||
        core->appended_since_scan < core->scan_after) {
      return;
    }
    core->may_have_died = false;
    core->counting = true;
    core->appended_since_scan = 0;
    liveness = core->liveness;
  }
  std::vector<TopicEntry> asked;
  {
    MutexLock lock(core->contents->mutex);
    for (const auto& [partition, entries] : core->contents->entries) {
      for (const auto& [offset, placed] : entries) {
        asked.push_back(placed.entry);
        asked.back().body = SharedBytes();
      }
    }
  }
  liveness->CountLive(asked, [core, asked](std::vector<uint32_t> live) {
    MR_CHECK(live.size() == asked.size());
    Drop(*core, asked, live);
  });
}

// One commit. False if there was nothing to do.
bool Commit(const std::shared_ptr<LogCore>& core) {
  std::vector<LogCore::Pending> group;
  {
    MutexLock lock(core->mutex);
    group.swap(core->pending);
  }
  if (!group.empty()) {
    Lsn end = Keep(*core, group);
    for (LogCore::Pending& pending : group) {
      if (pending.on_durable) pending.on_durable();
    }
    MutexLock lock(core->contents->mutex);
    core->contents->called_back_end = std::max(core->contents->called_back_end, end);
  }
  MayScan(core);
  return !group.empty();
}

class MemoryLog : public CommitLog {
 public:
  MemoryLog(Executor* executor, std::unique_ptr<ThreadPool> own_thread,
            std::shared_ptr<MemoryLogContents> contents, bool keep_records)
      : own_thread_(std::move(own_thread)),
        core_(std::make_shared<LogCore>(own_thread_ ? own_thread_.get() : executor,
                                        std::move(contents), keep_records)) {}

  ~MemoryLog() override {
    std::vector<LogCore::Pending> lost;  // destroyed without the lock: callbacks may own anything
    {
      MutexLock lock(core_->mutex);
      core_->closed = true;
      lost.swap(core_->pending);
    }
  }

  void Append(std::vector<Record> records, Task on_durable) override {
    {
      MutexLock lock(core_->mutex);
      MR_CHECK(!core_->closed);
      core_->pending.push_back({std::move(records), std::move(on_durable)});
      if (core_->scheduled) return;
      core_->scheduled = true;
    }
    Schedule();
  }

  bool HasRoomToGrow() const override { return true; }

  Status Replay(Lsn from, FunctionRef<Status(Lsn, const Record&)> visit) override {
    std::vector<MemoryLogContents::PlacedRecord> records;
    {
      MutexLock lock(core_->contents->mutex);
      for (const auto& placed : core_->contents->records) {
        if (placed.lsn >= from) records.push_back(placed);
      }
    }
    for (const auto& placed : records) MR_RETURN_IF_ERROR(visit(placed.lsn, placed.record));
    return OkStatus();
  }

  StatusOr<std::vector<TopicEntry>> ReadEntries(TopicPartition partition, uint64_t offset,
                                                size_t max_bytes) override {
    std::vector<TopicEntry> out;
    MutexLock lock(core_->contents->mutex);
    auto found = core_->contents->entries.find(partition);
    if (found == core_->contents->entries.end()) return out;
    auto it = found->second.upper_bound(offset);
    if (it != found->second.begin()) {
      auto before = std::prev(it);
      if (before->first + before->second.entry.count > offset) it = before;
    }
    size_t bytes = 0;
    for (; it != found->second.end(); ++it) {
      bytes += it->second.entry.body.size();
      if (!out.empty() && bytes > max_bytes) break;
      out.push_back(it->second.entry);
    }
    return out;
  }

  bool TryReadEntries(TopicPartition partition, uint64_t offset, size_t max_bytes,
                      std::vector<TopicEntry>* out) override {
    *out = std::move(ReadEntries(partition, offset, max_bytes)).value();
    return true;
  }

  void TruncateBefore(Lsn lsn) override {
    MutexLock lock(core_->contents->mutex);
    auto& records = core_->contents->records;
    while (!records.empty() && records.front().lsn < lsn) records.pop_front();
  }

  void SetLiveness(std::shared_ptr<Liveness> liveness) override {
    MutexLock lock(core_->mutex);
    core_->liveness = std::move(liveness);
  }

  void MayHaveDied() override {
    {
      MutexLock lock(core_->mutex);
      core_->may_have_died = true;
      bool due = core_->liveness && core_->appended_since_scan >= core_->scan_after;
      if (!due || core_->scheduled || core_->closed) return;
      core_->scheduled = true;
    }
    Schedule();
  }

  LogStats Stats() const override {
    LogStats stats;
    {
      MutexLock lock(core_->contents->mutex);
      stats.durable_end = core_->contents->called_back_end;
      stats.entry_bytes = core_->contents->entry_bytes;
    }
    MutexLock lock(core_->mutex);
    stats.groups = core_->groups;
    return stats;
  }

  void Close() override {
    if (own_thread_) own_thread_->Stop();
    while (Commit(core_)) {
    }
    MutexLock lock(core_->mutex);
    core_->closed = true;
  }

 private:
  void Schedule() {
    core_->executor->Post([core = core_] {
      {
        MutexLock lock(core->mutex);
        core->scheduled = false;
        if (core->closed) return;
      }
      Commit(core);
    });
  }

  // Declared first: its tasks use the core, so it must have ended before the core's members go (the
  // core is shared with them).
  const std::unique_ptr<ThreadPool> own_thread_;
  const std::shared_ptr<LogCore> core_;
};

}  // namespace

std::unique_ptr<CommitLog> MakeMemoryLog() {
  return std::make_unique<MemoryLog>(nullptr, std::make_unique<ThreadPool>(1, "memory-log"),
                                     MakeMemoryLogContents(), false);
}

std::unique_ptr<CommitLog> MakeMemoryLog(Executor* executor,
                                         std::shared_ptr<MemoryLogContents> contents) {
  bool keep_records = contents != nullptr;
  if (!contents) contents = MakeMemoryLogContents();
  return std::make_unique<MemoryLog>(executor, nullptr, std::move(contents), keep_records);
}

}  // namespace millrace::storage
