#include "storage/commit_log/spares.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "storage/commit_log/frame.h"

namespace millrace::storage {
namespace {

constexpr size_t kFillBytes = 256 << 10;
constexpr uint64_t kFillSyncBytes = 8 << 20;
constexpr auto kRetry = std::chrono::seconds(1);

Status WriteSpareHeader(File& file, uint64_t capacity) {
  SegmentHeader header{SegmentHeader::kSpare, 0, capacity, 0};
  MR_RETURN_IF_ERROR(file.WriteAt(0, EncodeSegmentHeader(header)));
  return file.Sync();
}

}  // namespace

SpareSegments::SpareSegments(std::shared_ptr<Files> files, Options options, uint64_t next_number)
    : files_(std::move(files)), options_(std::move(options)), next_number_(next_number) {
  CheckRoom();
  thread_ = std::thread([this] { Work(); });
}

SpareSegments::~SpareSegments() { Stop(); }

void SpareSegments::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

bool SpareSegments::Urgent() {
  MutexLock lock(mutex_);
  return waiting_ > 0 || stopping_;
}

// A file gets its name once its header is durable, so that a named file without a good header is
// damage.
StatusOr<SegmentFile> SpareSegments::Make(uint64_t capacity) {
  uint64_t number = next_number_.fetch_add(1);
  SegmentFile made;
  made.capacity = capacity;
  made.path = fmt::format("{}/{:010}.seg", options_.directory, number);
  std::string unfinished = made.path + ".tmp";
  MR_ASSIGN_OR_RETURN(made.file, files_->Open(unfinished, /*create=*/true));
  if (Status allocated = made.file->Allocate(capacity); !allocated.ok()) {
    made.file.reset();
    (void)files_->Remove(unfinished);
    return allocated;
  }
  MR_RETURN_IF_ERROR(WriteSpareHeader(*made.file, capacity));
  MR_RETURN_IF_ERROR(files_->Rename(unfinished, made.path));
  MR_RETURN_IF_ERROR(files_->SyncDirectory(options_.directory));
  made.filling = std::make_shared<SegmentFile::Filling>();
  return made;
}

// Zeros from the header on, synced now and then. Stops where the writer has been, or when `stop`
// says so.
void SpareSegments::Fill(File& file, SegmentFile::Filling& filling, uint64_t capacity,
                         FunctionRef<bool()> stop) {
  static const std::string zeros(kFillBytes, '\0');
  Status status;
  uint64_t unsynced = 0;
  for (uint64_t at = kSegmentHeaderBytes; status.ok() && at < capacity && !stop();) {
    {
      MutexLock lock(filling.mutex);
      at = std::max(at, filling.written_to);
      if (at >= capacity) break;
      size_t size = std::min<uint64_t>(kFillBytes, capacity - at);
      status = file.WriteAt(at, std::string_view(zeros).substr(0, size));
      at += size;
      unsynced += size;
    }
    if (status.ok() && (unsynced >= kFillSyncBytes || at >= capacity)) {
      status = file.Sync();
      unsynced = 0;
    }
  }
  if (!status.ok()) MR_DIE("cannot fill a segment: {}", MessageOf(status));
  filling.done = true;
}

StatusOr<SegmentFile> SpareSegments::MakeFirst() {
  MR_ASSIGN_OR_RETURN(SegmentFile first, Make(options_.segment_bytes));
  Post([this, file = first.file, filling = first.filling, capacity = first.capacity] {
    Fill(*file, *filling, capacity, [this] { return stopping_.load(); });
  });
  return first;
}

void SpareSegments::Want() {
  {
    MutexLock lock(mutex_);
    if (wanted_ || spare_) return;
    wanted_ = true;
  }
  changed_.NotifyAll();
}

void SpareSegments::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

StatusOr<SegmentFile> SpareSegments::Take(uint64_t capacity_at_least) {
  if (capacity_at_least > options_.segment_bytes) {
    while (true) {
      auto made = Make((capacity_at_least + 4095) / 4096 * 4096);
      if (made.ok() || made.status().code() != StatusCode::kResourceExhausted) return made;
      MR_LOG(kError, "the disk is full, commits wait: {}", MessageOf(made.status()));
      has_room_ = false;
      MutexLock lock(mutex_);
      if (stopping_) return made.status();
      changed_.WaitFor(mutex_, kRetry);
    }
  }
  MutexLock lock(mutex_);
  wanted_ = true;
  ++waiting_;
  changed_.NotifyAll();
  while (!spare_ && !stopping_) changed_.Wait(mutex_);
  --waiting_;
  if (!spare_) return Cancelled("stopped while waiting for a segment");
  SegmentFile taken = std::move(*spare_);
  spare_.reset();
  spare_bytes_ = 0;
  wanted_ = false;
  return taken;
}

void SpareSegments::Recycle(SegmentFile file) {
  // First the header, durably: a half overwritten segment must never look like an old one that is
  // damaged.
  if (Status status = WriteSpareHeader(*file.file, file.capacity); !status.ok()) {
    MR_DIE("cannot recycle {}: {}", file.path, MessageOf(status));
  }
  file.filling = nullptr;
  Keep(std::move(file));
}

void SpareSegments::CheckRoom() {
  auto free = files_->FreeBytes(options_.directory);
  bool room = !free.ok() || *free >= options_.min_free_bytes;
  if (has_room_.exchange(room) && !room) {
    MR_LOG(kWarning, "{}: {} MB free, less than the reserve of {} MB: publishes are refused",
           options_.directory, *free >> 20, options_.min_free_bytes >> 20);
  }
}

// One spare, if wanted and there is none.
void SpareSegments::Supply() {
  {
    MutexLock lock(mutex_);
    if (!wanted_ || spare_) return;
  }
  CheckRoom();
  auto made = Make(options_.segment_bytes);
  if (!made.ok()) {
    if (made.status().code() != StatusCode::kResourceExhausted) {
      MR_DIE("cannot make a segment: {}", MessageOf(made.status()));
    }
    has_room_ = false;
    {
      MutexLock lock(mutex_);
      full_ = true;
    }
    if (Urgent()) MR_LOG(kError, "the disk is full, commits wait: {}", MessageOf(made.status()));
    return;
  }
  // While a commit waits the blocks are used as they are.
  Fill(*made->file, *made->filling, made->capacity, [this] { return Urgent(); });
  made->filling = nullptr;
  Keep(*std::move(made));
  CheckRoom();
}

// As the spare if there is none, otherwise it goes.
void SpareSegments::Keep(SegmentFile file) {
  {
    MutexLock lock(mutex_);
    if (!spare_ && file.capacity == options_.segment_bytes) {
      spare_ = std::make_unique<SegmentFile>(std::move(file));
      spare_bytes_ = options_.segment_bytes;
      changed_.NotifyAll();
      return;
    }
  }
  file.file.reset();
  Status removed = files_->Remove(file.path);
  if (removed.ok()) removed = files_->SyncDirectory(options_.directory);
  if (!removed.ok()) MR_LOG(kWarning, "{}", MessageOf(removed));
}

void SpareSegments::Work() {
  while (true) {
    std::vector<Task> tasks;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_ && !(wanted_ && !spare_ && !full_)) {
        if (has_room_ && !full_) {
          changed_.Wait(mutex_);
        } else if (!changed_.WaitFor(mutex_, kRetry)) {
          break;
        }
      }
      if (stopping_ && tasks_.empty()) return;
      full_ = false;
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) task();
    if (!has_room_) CheckRoom();
    if (!stopping_) Supply();
  }
}

}  // namespace millrace::storage
