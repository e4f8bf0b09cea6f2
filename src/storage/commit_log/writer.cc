#include "storage/commit_log/writer.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"

namespace millrace::storage {
namespace {

// fdatasync moves most bytes a second at about this size.
constexpr size_t kGroupBytes = 1 << 20;
constexpr uint64_t kCheckRoomBytes = 16 << 20;

size_t BytesOf(const std::vector<Record>& records) {
  size_t bytes = 0;
  for (const Record& record : records) {
    bytes += 64 + record.payload.size() + (record.entry ? record.entry->body.size() : 0);
  }
  return bytes;
}

}  // namespace

LogWriter::LogWriter(SegmentTable& table, EntryCache& cache, SpareSegments& spares, Options options,
                     Start start, Callback<void()> on_sealed)
    : table_(table),
      cache_(cache),
      spares_(spares),
      options_(options),
      on_sealed_(std::move(on_sealed)),
      durable_end_(start.end),
      segment_(std::move(start.segment)),
      next_base_(start.next_base),
      end_(start.end),
      synced_end_(start.end) {
  if (segment_) offset_ = start.end - segment_->base;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "log-writer");
    Work();
  });
}

LogWriter::~LogWriter() {
  {
    MutexLock lock(mutex_);
    abandoned_ = true;
  }
  ready_.NotifyAll();
  spares_.Stop();  // ends a wait for a segment
  if (thread_.joinable()) thread_.join();
}

void LogWriter::Append(std::vector<Record> records, Task on_durable) {
  Pending pending;
  pending.bytes = BytesOf(records);
  pending.records = std::move(records);
  pending.on_durable = std::move(on_durable);
  Enqueue(std::move(pending));
}

void LogWriter::AppendRelocated(std::vector<TopicEntry> entries, Task on_durable) {
  Pending pending;
  for (const TopicEntry& entry : entries) pending.bytes += 64 + entry.body.size();
  pending.relocated = std::move(entries);
  pending.on_durable = std::move(on_durable);
  pending.sync = true;
  Enqueue(std::move(pending));
}

void LogWriter::Enqueue(Pending pending) {
  {
    MutexLock lock(mutex_);
    MR_CHECK(!closed_);
    queue_.push_back(std::move(pending));
    if (queue_.size() > 1) return;  // the thread is busy, or has been woken
  }
  ready_.NotifyOne();
}

void LogWriter::SyncNow() {
  if (options_.durability == Durability::kSync) return;
  struct Waiter {
    Mutex mutex;
    CondVar changed;
    bool done = false;
  };
  auto waiter = std::make_shared<Waiter>();
  Pending pending;
  pending.sync = true;
  pending.on_durable = [waiter] {
    MutexLock lock(waiter->mutex);
    waiter->done = true;
    waiter->changed.NotifyAll();
  };
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(pending));
  }
  ready_.NotifyOne();
  MutexLock lock(waiter->mutex);
  while (!waiter->done) waiter->changed.Wait(waiter->mutex);
}

void LogWriter::Close() {
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      queue_.emplace_back();
      queue_.back().sync = true;
    }
    closed_ = true;
  }
  ready_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void LogWriter::Work() {
  std::deque<Pending> taken;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (taken.empty()) {
        while (queue_.empty() && !closed_ && !abandoned_) ready_.Wait(mutex_);
      }
      if (abandoned_) return;
      std::move(queue_.begin(), queue_.end(), std::back_inserter(taken));
      queue_.clear();
    }
    if (taken.empty()) return;
    std::vector<Pending> group;
    for (size_t bytes = 0; !taken.empty() && bytes < kGroupBytes; taken.pop_front()) {
      bytes += taken.front().bytes;
      group.push_back(std::move(taken.front()));
    }
    Commit(group);
  }
}

// Callbacks are dropped, not run, if the log is abandoned while waiting for room.
void LogWriter::Commit(std::vector<Pending>& group) {
  builder_.Clear();
  bool force_sync = false;
  for (const Pending& pending : group) {
    force_sync |= pending.sync;
    for (const Record& record : pending.records) builder_.Add(record);
    for (const TopicEntry& entry : pending.relocated) builder_.AddRelocated(entry);
  }
  if (!builder_.empty()) {
    if (!WriteFrame(force_sync)) return;
    groups_.fetch_add(1, std::memory_order_relaxed);
  } else if (force_sync && synced_end_ < end_) {
    Sync();
  }
  for (Pending& pending : group) {
    if (pending.on_durable) pending.on_durable();
  }
  durable_end_.store(end_, std::memory_order_release);
  if (full_) Seal(std::move(full_));
}

bool LogWriter::WriteFrame(bool force_sync) {
  if (!MakeRoom()) return false;
  uint64_t at = offset_;
  std::vector<std::string_view> pieces;
  if (!header_.empty()) {
    pieces.push_back(header_);
    at = 0;
    // From here on the segment before may be sealed and even recycled: this one must be found.
    force_sync = true;
  }
  const auto& frame = builder_.Finish(segment_->base + offset_, synced_end_, options_.boot);
  pieces.insert(pieces.end(), frame.begin(), frame.end());
  uint64_t frame_bytes = builder_.TotalBytes();
  Status written;
  if (segment_->filling && !segment_->filling->done) {
    MutexLock lock(segment_->filling->mutex);
    segment_->filling->written_to = offset_ + frame_bytes;
    written = segment_->file->WriteAtV(at, pieces);
  } else {
    written = segment_->file->WriteAtV(at, pieces);
  }
  if (!written.ok()) MR_DIE("commit log: {}", MessageOf(written));
  header_.clear();
  uint64_t frame_offset = offset_;
  offset_ += frame_bytes;
  end_ = segment_->base + offset_;
  if (options_.durability == Durability::kSync || force_sync) Sync();
  Publish(frame_offset);
  unchecked_ += frame_bytes;
  if (unchecked_ >= kCheckRoomBytes) {
    unchecked_ = 0;
    spares_.Post([&spares = spares_] { spares.CheckRoom(); });
  }
  if (offset_ > segment_->capacity / 2) spares_.Want();
  return true;
}

void LogWriter::Sync() {
  if (!FaultPoint("storage.skip_sync")) {
    if (Status synced = segment_->file->Sync(); !synced.ok()) {
      MR_DIE("commit log: {}", MessageOf(synced));
    }
  }
  synced_end_ = end_;
}

// Readers may see the entries of the frame now.
void LogWriter::Publish(uint64_t frame_offset) {
  std::vector<SegmentTable::NewEntry> entries;
  entries.reserve(builder_.entries().size());
  for (const FrameBuilder::PlacedEntry& placed : builder_.entries()) {
    const TopicEntry& entry = *placed.entry;
    if (!placed.relocated) cache_.Add(entry);
    entries.push_back({entry.partition,
                       {entry.first_offset, entry.publish_time.micros, entry.count,
                        static_cast<uint32_t>(frame_offset + placed.body_position),
                        static_cast<uint32_t>(entry.body.size())}});
  }
  table_.AddEntries(segment_, entries, end_);
}

bool LogWriter::MakeRoom() {
  uint64_t bytes = builder_.TotalBytes();
  uint64_t index_bytes = 256 + builder_.entries().size() * 120;
  if (segment_) {
    uint64_t reserved = table_.IndexBytesLimit(segment_) + index_bytes;
    if (offset_ + bytes + reserved <= segment_->capacity) return true;
  }
  return Roll(bytes + index_bytes);
}

// Goes on in a new segment.
bool LogWriter::Roll(uint64_t frame_bytes) {
  if (segment_ && synced_end_ < end_) Sync();  // the header of the next segment vouches for it
  auto file = spares_.Take(kSegmentHeaderBytes + frame_bytes);
  if (!file.ok()) {
    MutexLock lock(mutex_);
    if (!abandoned_) MR_DIE("commit log: {}", MessageOf(file.status()));
    return false;
  }
  if (segment_) {
    if (segment_->filling) {
      MutexLock lock(segment_->filling->mutex);
      segment_->filling->written_to = segment_->capacity;
    }
    full_ = std::move(segment_);
  }
  segment_ = std::make_shared<Segment>(*std::move(file), next_base_);
  segment_->growing = std::make_unique<GrowingIndex>();
  segment_->data_end = next_base_ + kSegmentHeaderBytes;
  header_ = EncodeSegmentHeader({SegmentHeader::kLog, next_base_, segment_->capacity, end_});
  next_base_ += segment_->capacity;
  offset_ = kSegmentHeaderBytes;
  table_.Add(segment_);
  return true;
}

void LogWriter::Seal(SegmentPtr segment) {
  spares_.Post([this, segment = std::move(segment)] {
    EncodedIndex index = table_.Encode(segment);
    uint64_t room = segment->capacity - (segment->data_end - segment->base);
    if (index.bytes.size() > room) {
      MR_LOG(kWarning, "{}: no room for its index, which stays in memory", segment->path);
      return;
    }
    Status status = segment->file->WriteAt(segment->capacity - index.bytes.size(), index.bytes);
    if (status.ok()) status = segment->file->Sync();
    if (!status.ok()) MR_DIE("commit log: {}", MessageOf(status));
    table_.SetIndexed(segment, std::move(index.pages));
    on_sealed_();
  });
}

}  // namespace millrace::storage
