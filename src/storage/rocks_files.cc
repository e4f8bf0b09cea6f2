#include "storage/rocks_files.h"

#include <rocksdb/file_system.h>

#include <utility>

namespace millrace::storage {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus ToIo(const Status& status) {
  if (status.ok()) return IOStatus::OK();
  std::string text(MessageOf(status));
  if (status.code() == StatusCode::kNotFound) return IOStatus::PathNotFound(text);
  if (status.code() == StatusCode::kResourceExhausted) return IOStatus::NoSpace(text);
  return IOStatus::IOError(text);
}

IOStatus ReadInto(File& file, uint64_t offset, size_t size, Slice* result, char* scratch) {
  auto got = file.ReadAt(offset, scratch, size);
  if (!got.ok()) return ToIo(got.status());
  *result = Slice(scratch, *got);
  return IOStatus::OK();
}

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  IOStatus Read(size_t size, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    IOStatus status = ReadInto(*file_, offset_, size, result, scratch);
    if (status.ok()) offset_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t size) override {
    offset_ += size;
    return IOStatus::OK();
  }

 private:
  const std::unique_ptr<File> file_;
  uint64_t offset_ = 0;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  IOStatus Read(uint64_t offset, size_t size, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return ReadInto(*file_, offset, size, result, scratch);
  }

 private:
  const std::unique_ptr<File> file_;
};

class WritableFile : public rocksdb::FSWritableFile {
 public:
  explicit WritableFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const Slice& bytes, const IOOptions&, IODebugContext*) override {
    Status status = file_->WriteAt(size_, {bytes.data(), bytes.size()});
    if (status.ok()) size_ += bytes.size();
    return ToIo(status);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return ToIo(file_->Sync()); }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }

 private:
  const std::unique_ptr<File> file_;
  uint64_t size_ = 0;
};

class Directory : public rocksdb::FSDirectory {
 public:
  Directory(std::shared_ptr<Files> files, std::string path)
      : files_(std::move(files)), path_(std::move(path)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return ToIo(files_->SyncDirectory(path_));
  }

 private:
  const std::shared_ptr<Files> files_;
  const std::string path_;
};

// The directory is locked by whoever opened it (open.cc), so locks here are tokens only.
class Lock : public rocksdb::FileLock {};

class FileSystem : public rocksdb::FileSystem {
 public:
  explicit FileSystem(std::shared_ptr<Files> files) : files_(std::move(files)) {}
  const char* Name() const override { return "MillraceFiles"; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    return Make<SequentialFile>(path, /*create=*/false, result);
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    return Make<RandomAccessFile>(path, /*create=*/false, result);
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    Status removed = files_->Remove(path);  // an old file of this name is replaced
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return ToIo(removed);
    return Make<WritableFile>(path, /*create=*/true, result);
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    *result = std::make_unique<Directory>(files_, path);
    return IOStatus::OK();
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    Status status = files_->Open(path, false).status();
    return status.code() == StatusCode::kNotFound ? IOStatus::NotFound() : ToIo(status);
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    auto names = files_->List(path);
    if (!names.ok()) return ToIo(names.status());
    *result = *std::move(names);
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return ToIo(files_->Remove(path));
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return ToIo(files_->MakeDirectory(path));
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    return ToIo(files_->MakeDirectory(path));
  }
  IOStatus DeleteDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("directories stay");
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    auto file = files_->Open(path, false);
    if (!file.ok()) return ToIo(file.status());
    auto got = (*file)->Size();
    if (!got.ok()) return ToIo(got.status());
    *size = *got;
    return IOStatus::OK();
  }
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return ToIo(files_->Rename(from, to));
  }
  IOStatus LockFile(const std::string&, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = new Lock;
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    delete lock;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string*, IODebugContext*) override {
    return IOStatus::NotSupported("no test directory");
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = path;
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_directory,
                       IODebugContext*) override {
    *is_directory = files_->List(path).ok();
    return IOStatus::OK();
  }

 private:
  template <typename Made, typename Result>
  IOStatus Make(const std::string& path, bool create, std::unique_ptr<Result>* result) {
    auto file = files_->Open(path, create);
    if (!file.ok()) return ToIo(file.status());
    *result = std::make_unique<Made>(*std::move(file));
    return IOStatus::OK();
  }

  const std::shared_ptr<Files> files_;
};

class SwitchedFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  SwitchedFile(std::unique_ptr<rocksdb::FSWritableFile> file, SyncSwitch syncs)
      : rocksdb::FSWritableFileOwnerWrapper(std::move(file)), syncs_(std::move(syncs)) {}
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return *syncs_ ? target()->Sync(options, debug) : IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return *syncs_ ? target()->Fsync(options, debug) : IOStatus::OK();
  }

 private:
  const SyncSwitch syncs_;
};

class SwitchedDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  SwitchedDirectory(std::unique_ptr<rocksdb::FSDirectory> directory, SyncSwitch syncs)
      : rocksdb::FSDirectoryWrapper(std::move(directory)), syncs_(std::move(syncs)) {}
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return *syncs_ ? rocksdb::FSDirectoryWrapper::Fsync(options, debug) : IOStatus::OK();
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& what) override {
    if (!*syncs_) return IOStatus::OK();
    return rocksdb::FSDirectoryWrapper::FsyncWithDirOptions(options, debug, what);
  }

 private:
  const SyncSwitch syncs_;
};

class SwitchedFileSystem : public rocksdb::FileSystemWrapper {
 public:
  SwitchedFileSystem(std::shared_ptr<rocksdb::FileSystem> target, SyncSwitch syncs)
      : rocksdb::FileSystemWrapper(std::move(target)), syncs_(std::move(syncs)) {}
  const char* Name() const override { return "MillraceSwitchedSyncs"; }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext* debug) override {
    IOStatus status = target()->NewWritableFile(path, options, result, debug);
    if (status.ok()) *result = std::make_unique<SwitchedFile>(std::move(*result), syncs_);
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result,
                        IODebugContext* debug) override {
    IOStatus status = target()->NewDirectory(path, options, result, debug);
    if (status.ok()) *result = std::make_unique<SwitchedDirectory>(std::move(*result), syncs_);
    return status;
  }

 private:
  const SyncSwitch syncs_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> MakeRocksEnv(std::shared_ptr<Files> files, SyncSwitch syncs) {
  std::shared_ptr<rocksdb::FileSystem> system = rocksdb::FileSystem::Default();
  if (files) system = std::make_shared<FileSystem>(std::move(files));
  if (syncs) system = std::make_shared<SwitchedFileSystem>(std::move(system), std::move(syncs));
  return rocksdb::NewCompositeEnv(system);
}

}  // namespace millrace::storage
