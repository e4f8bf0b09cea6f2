#include "storage/open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "storage/commit_log/disk_log.h"
#include "storage/memory_log.h"
#include "storage/memory_store.h"
#include "storage/rocks_store.h"

namespace millrace::storage {
namespace {

constexpr int kFormat = 1;
constexpr std::string_view kFormatText = "millrace data directory, format ";

// Holds the lock file open; the kernel lets go of the lock when the process ends, however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  ~DirectoryLock() { ::close(fd_); }

 private:
  const int fd_;
};

Status Unwritable(const std::string& directory, std::string_view why) {
  return FailedPrecondition(
      fmt::format("data directory {} cannot be written ({}): fix its permissions or choose another "
                  "with --data-dir",
                  directory, why));
}

StatusOr<std::shared_ptr<void>> LockDirectory(const std::string& directory) {
  std::string path = directory + "/LOCK";
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Unwritable(directory, std::strerror(errno));
  auto lock = std::make_shared<DirectoryLock>(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char text[32] = {};
    ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
    std::string_view pid(text, got > 0 ? static_cast<size_t>(got) : 0);
    while (!pid.empty() && pid.back() == '\n') pid.remove_suffix(1);
    return FailedPrecondition(fmt::format(
        "data directory {} is in use by process {}: stop it or choose another with --data-dir",
        directory, pid.empty() ? "(unknown)" : pid));
  }
  std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Unwritable(directory, std::strerror(errno));
  }
  return std::shared_ptr<void>(std::move(lock));
}

// True if the directory is complete, false if it is to be created.
StatusOr<bool> ReadFormat(Files& files, const std::string& directory) {
  auto file = files.Open(directory + "/FORMAT", /*create=*/false);
  if (file.status().code() == StatusCode::kNotFound) {
    auto names = files.List(directory + "/log");
    bool has_log = names.ok() && std::any_of(names->begin(), names->end(), [](const auto& name) {
                     return name.ends_with(".seg");
                   });
    if (!has_log) return false;
    return DataLoss(fmt::format(
        "data directory {} has a log but no FORMAT file: restore it from a backup, or move the "
        "directory away to start empty",
        directory));
  }
  MR_RETURN_IF_ERROR(file.status());
  char text[64];
  MR_ASSIGN_OR_RETURN(size_t got, (*file)->ReadAt(0, text, sizeof text));
  std::string_view view(text, got);
  int format = 0;
  if (!view.starts_with(kFormatText) ||
      std::from_chars(text + kFormatText.size(), text + got, format).ec != std::errc() ||
      format < 1) {
    return DataLoss(
        fmt::format("{}/FORMAT is not a millrace format file: {} is no data directory "
                    "of millrace, or it is damaged",
                    directory, directory));
  }
  if (format > kFormat) {
    return FailedPrecondition(fmt::format(
        "data directory {} was written by a newer version (format {}, this one knows up to {}): "
        "run that version",
        directory, format, kFormat));
  }
  return true;
}

// The last step of a creation: without it the next start creates anew.
Status WriteFormat(Files& files, const std::string& directory) {
  std::string path = directory + "/FORMAT";
  MR_ASSIGN_OR_RETURN(auto file, files.Open(path + ".tmp", /*create=*/true));
  MR_RETURN_IF_ERROR(file->WriteAt(0, fmt::format("{}{}\n", kFormatText, kFormat)));
  MR_RETURN_IF_ERROR(file->Sync());
  MR_RETURN_IF_ERROR(files.Rename(path + ".tmp", path));
  return files.SyncDirectory(directory);
}

// What the store's flushes wait for with durability async. Emptied before the log goes.
struct FlushGate {
  Mutex mutex;
  DiskLog* log MR_GUARDED_BY(mutex) = nullptr;
  void Set(DiskLog* to) {
    MutexLock lock(mutex);
    log = to;
  }
  void Sync() {
    MutexLock lock(mutex);
    if (log != nullptr) log->SyncNow();
  }
};

Status Explain(const Status& status, const OpenOptions& options) {
  switch (status.code()) {
    case StatusCode::kDataLoss:
      return MakeStatus(status.code(), fmt::format("data directory {} is corrupt: {}",
                                                   options.directory, MessageOf(status)));
    case StatusCode::kResourceExhausted:
      return MakeStatus(
          status.code(),
          fmt::format("no room for data directory {} ({}): free some space or choose another with "
                      "--data-dir",
                      options.directory, MessageOf(status)));
    case StatusCode::kFailedPrecondition:
      return status;
    default:
      return MakeStatus(status.code(), fmt::format("data directory {} cannot be opened: {}",
                                                   options.directory, MessageOf(status)));
  }
}

Status OpenParts(const OpenOptions& options, const std::shared_ptr<Files>& files, Storage& out) {
  MR_ASSIGN_OR_RETURN(bool complete, ReadFormat(*files, options.directory));
  auto gate = std::make_shared<FlushGate>();
  RocksStoreOptions store_options;
  store_options.directory = options.directory + "/store";
  store_options.create = !complete;
  store_options.files = options.files;
  if (options.durability == Durability::kAsync)
    store_options.before_flush = [gate] { gate->Sync(); };
  MR_ASSIGN_OR_RETURN(out.store, OpenRocksStore(store_options));
  MR_RETURN_IF_ERROR(files->MakeDirectory(options.directory + "/log"));
  if (!complete) {
    MR_RETURN_IF_ERROR(files->SyncDirectory(options.directory));
    MR_RETURN_IF_ERROR(WriteFormat(*files, options.directory));
  }
  DiskLogOptions log_options;
  log_options.directory = options.directory + "/log";
  log_options.files = files;
  log_options.durability = options.durability;
  log_options.min_free_bytes = options.min_free_bytes;
  log_options.segment_bytes = options.segment_bytes;
  log_options.entry_cache_bytes = options.entry_cache_bytes;
  MR_ASSIGN_OR_RETURN(log_options.replay_position, Checkpointer::ReplayPosition(*out.store));
  MR_ASSIGN_OR_RETURN(auto log, OpenDiskLog(log_options));
  gate->Set(log.get());
  out.flush_gate = std::shared_ptr<void>(nullptr, [gate](void*) { gate->Set(nullptr); });
  out.log = std::move(log);
  out.checkpointer = std::make_unique<Checkpointer>(
      *out.log, *out.store, Checkpointer::Options{options.checkpoint_bytes});
  return OkStatus();
}

// Every segment and table file stays open; the usual soft limit of 1,024 is 100 GB of log.
void AllowManyFiles() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Status Storage::Close() {
  Status status;
  if (checkpointer) status = checkpointer->Close();
  flush_gate.reset();
  if (log) log->Close();
  checkpointer.reset();
  return status;
}

// The order matters: the checkpointer uses both others.
Storage::~Storage() {
  checkpointer.reset();
  flush_gate.reset();
  log.reset();
  store.reset();
}

StatusOr<std::unique_ptr<Storage>> OpenDirectory(const OpenOptions& options) {
  std::shared_ptr<Files> files = options.files ? options.files : RealFiles();
  auto storage = std::make_unique<Storage>();
  if (Status made = files->MakeDirectory(options.directory); !made.ok()) {
    return Unwritable(options.directory, MessageOf(made));
  }
  if (!options.files) {
    AllowManyFiles();
    MR_ASSIGN_OR_RETURN(storage->lock, LockDirectory(options.directory));
  }
  Status opened = OpenParts(options, files, *storage);
  if (!opened.ok()) return Explain(opened, options);
  return storage;
}

std::unique_ptr<Storage> OpenInMemory() {
  auto storage = std::make_unique<Storage>();
  storage->log = MakeMemoryLog();
  storage->store = std::make_unique<MemoryStore>();
  // No restart will ever read a checkpoint.
  storage->checkpointer = std::make_unique<Checkpointer>(
      *storage->log, *storage->store, Checkpointer::Options{Checkpointer::Options::kNever});
  return storage;
}

}  // namespace millrace::storage
