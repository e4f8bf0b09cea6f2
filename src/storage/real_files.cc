#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "storage/file.h"

namespace millrace::storage {
namespace {

Status ErrnoStatus(std::string_view call, std::string_view path) {
  int error = errno;
  std::string text = fmt::format("{} {}: {}", call, path, std::strerror(error));
  switch (error) {
    case ENOENT:
      return NotFound(text);
    case EEXIST:
      return AlreadyExists(text);
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted(text);
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOTDIR:
      return FailedPrecondition(text);
    default:
      return Internal(text);
  }
}

class RealFile : public File {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~RealFile() override { ::close(fd_); }

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    return WriteAtV(offset, {bytes});
  }

  Status WriteAtV(uint64_t offset, const std::vector<std::string_view>& pieces) override {
    constexpr size_t kBatch = 512;  // below IOV_MAX
    iovec vectors[kBatch];
    size_t next = 0;    // piece not yet written in full
    size_t inside = 0;  // bytes of it that are
    while (next < pieces.size()) {
      size_t count = 0;
      for (size_t i = next; i < pieces.size() && count < kBatch; ++i) {
        size_t skip = i == next ? inside : 0;
        vectors[count].iov_base = const_cast<char*>(pieces[i].data() + skip);
        vectors[count++].iov_len = pieces[i].size() - skip;
      }
      ssize_t wrote = ::pwritev(fd_, vectors, static_cast<int>(count), static_cast<off_t>(offset));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return ErrnoStatus("write", path_);
      offset += static_cast<uint64_t>(wrote);
      size_t left = static_cast<size_t>(wrote);
      while (next < pieces.size() && left >= pieces[next].size() - inside) {
        left -= pieces[next++].size() - inside;
        inside = 0;
      }
      inside += left;
    }
    return OkStatus();
  }

  StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      ssize_t got = ::pread(fd_, out + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus("read", path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  Status Sync() override {
    return ::fdatasync(fd_) == 0 ? OkStatus() : ErrnoStatus("fdatasync", path_);
  }

  Status Allocate(uint64_t size) override {
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0) return OkStatus();
    if (errno == EOPNOTSUPP || errno == ENOSYS) {  // some file systems cannot; then writes find out
      return ::ftruncate(fd_, static_cast<off_t>(size)) == 0 ? OkStatus()
                                                             : ErrnoStatus("ftruncate", path_);
    }
    return ErrnoStatus("fallocate", path_);
  }

  StatusOr<uint64_t> Size() override {
    struct stat info;
    if (::fstat(fd_, &info) != 0) return ErrnoStatus("stat", path_);
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  const int fd_;
  const std::string path_;
};

class RealFileLayer : public Files {
 public:
  StatusOr<std::unique_ptr<File>> Open(const std::string& path, bool create) override {
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0644);
    if (fd < 0) return ErrnoStatus("open", path);
    return std::unique_ptr<File>(std::make_unique<RealFile>(fd, path));
  }

  StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr) return ErrnoStatus("open", directory);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir)) {
      std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(std::move(name));
    }
    ::closedir(dir);
    return names;
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? OkStatus() : ErrnoStatus("rename", from);
  }
  Status Remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? OkStatus() : ErrnoStatus("remove", path);
  }

  Status MakeDirectory(const std::string& path) override {
    for (size_t at = 1; at <= path.size(); ++at) {
      if (at < path.size() && path[at] != '/') continue;
      std::string prefix = path.substr(0, at);
      if (::mkdir(prefix.c_str(), 0755) == 0 || errno == EEXIST) continue;
      struct stat info;
      if (::stat(prefix.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
      return ErrnoStatus("make directory", prefix);
    }
    return OkStatus();
  }

  Status SyncDirectory(const std::string& path) override {
    int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus("open", path);
    bool synced = ::fsync(fd) == 0;
    Status status = synced ? OkStatus() : ErrnoStatus("sync", path);
    ::close(fd);
    return status;
  }

  StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs info;
    if (::statvfs(path.c_str(), &info) != 0) return ErrnoStatus("statvfs", path);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }
};

}  // namespace

std::shared_ptr<Files> RealFiles() {
  static std::shared_ptr<Files> files = std::make_shared<RealFileLayer>();
  return files;
}

}  // namespace millrace::storage
