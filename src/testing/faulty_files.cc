#include "testing/faulty_files.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"

namespace millrace::testing {
namespace {

constexpr uint64_t kSector = 512;

struct Inode {
  std::string content;       // as the process sees it
  std::string durable;       // as of the last sync
  std::set<uint64_t> dirty;  // sectors that may differ
};
using Names = std::map<std::string, std::shared_ptr<Inode>>;

struct NameChange {
  std::string path;
  std::shared_ptr<Inode> inode;  // null: the name goes
  std::string renamed_from;      // goes in the same step
};

void Apply(const NameChange& change, Names& names) {
  if (!change.renamed_from.empty()) names.erase(change.renamed_from);
  if (change.inode) {
    names[change.path] = change.inode;
  } else {
    names.erase(change.path);
  }
}

// Without doubled and trailing slashes.
std::string Clean(const std::string& path) {
  std::string out;
  for (char c : path) {
    if (c != '/' || out.empty() || out.back() != '/') out.push_back(c);
  }
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

struct FaultyFiles::State {
  Mutex mutex;
  std::mt19937_64 random MR_GUARDED_BY(mutex);
  Names names MR_GUARDED_BY(mutex);
  Names durable_names MR_GUARDED_BY(mutex);
  std::vector<NameChange> unsynced_names MR_GUARDED_BY(mutex);
  std::set<std::string> directories MR_GUARDED_BY(mutex);
  uint64_t countdown MR_GUARDED_BY(mutex) = 0;  // 0: no crash is due
  uint64_t capacity MR_GUARDED_BY(mutex) = UINT64_MAX;
  std::chrono::microseconds sync_delay MR_GUARDED_BY(mutex){0};
  std::map<std::string, std::string> image MR_GUARDED_BY(mutex);  // after the crash
  std::atomic<bool> crashed{false};

  // Counts one operation; crashes if it is the one.
  void Count() MR_REQUIRES(mutex) {
    if (countdown > 0 && --countdown == 0) Crash();
  }

  void Crash() MR_REQUIRES(mutex) {
    if (crashed) return;
    Names kept = durable_names;
    size_t survive = random() % (unsynced_names.size() + 1);
    for (size_t i = 0; i < survive; ++i) Apply(unsynced_names[i], kept);
    uint64_t percent = std::vector<uint64_t>{0, 100, 10, 50, 90}[random() % 5];
    image.clear();
    for (const auto& [path, inode] : kept) image[path] = AfterCrash(*inode, percent);
    crashed = true;
  }

  // Each sector written since the last sync made it or did not.
  std::string AfterCrash(const Inode& inode, uint64_t percent) MR_REQUIRES(mutex) {
    std::string out = inode.durable;
    for (uint64_t sector : inode.dirty) {
      if (random() % 100 >= percent) continue;
      uint64_t begin = sector * kSector;
      if (begin >= inode.content.size()) continue;
      uint64_t size = std::min(kSector, inode.content.size() - begin);
      if (out.size() < begin + size) out.resize(begin + size, '\0');
      out.replace(begin, size, inode.content, begin, size);
    }
    return out;
  }

  uint64_t Used() const MR_REQUIRES(mutex) {
    uint64_t used = 0;
    for (const auto& [path, inode] : names) used += inode->content.size();
    return used;
  }

  Status Grow(Inode& inode, uint64_t size) MR_REQUIRES(mutex) {
    if (size <= inode.content.size()) return OkStatus();
    if (capacity != UINT64_MAX && Used() + size - inode.content.size() > capacity) {
      return ResourceExhausted("no space left on the faulty device");
    }
    inode.content.resize(size, '\0');
    return OkStatus();
  }
};

class FaultyFiles::OpenFile : public storage::File {
 public:
  OpenFile(std::shared_ptr<State> state, std::shared_ptr<Inode> inode)
      : state_(std::move(state)), inode_(std::move(inode)) {}

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    return WriteAtV(offset, {bytes});
  }

  Status WriteAtV(uint64_t offset, const std::vector<std::string_view>& pieces) override {
    MutexLock lock(state_->mutex);
    uint64_t size = 0;
    for (std::string_view piece : pieces) size += piece.size();
    MR_RETURN_IF_ERROR(state_->Grow(*inode_, offset + size));
    if (size == 0) return OkStatus();
    uint64_t at = offset;
    for (std::string_view piece : pieces) {
      std::copy(piece.begin(), piece.end(), inode_->content.begin() + at);
      at += piece.size();
    }
    for (uint64_t s = offset / kSector; s <= (at - 1) / kSector; ++s) inode_->dirty.insert(s);
    state_->Count();
    return OkStatus();
  }

  StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t size) override {
    MutexLock lock(state_->mutex);
    if (offset >= inode_->content.size()) return size_t{0};
    size = std::min<uint64_t>(size, inode_->content.size() - offset);
    std::copy_n(inode_->content.begin() + offset, size, out);
    return size;
  }

  Status Sync() override {
    std::chrono::microseconds delay;
    {
      MutexLock lock(state_->mutex);
      delay = state_->sync_delay;
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    MutexLock lock(state_->mutex);
    state_->Count();  // a crash here comes before the sync has an effect
    inode_->durable.resize(inode_->content.size(), '\0');
    for (uint64_t sector : inode_->dirty) {
      uint64_t begin = sector * kSector;
      uint64_t size = std::min(kSector, inode_->content.size() - begin);
      inode_->durable.replace(begin, size, inode_->content, begin, size);
    }
    inode_->dirty.clear();
    return OkStatus();
  }

  Status Allocate(uint64_t size) override {
    MutexLock lock(state_->mutex);
    MR_RETURN_IF_ERROR(state_->Grow(*inode_, size));
    state_->Count();
    return OkStatus();
  }

  StatusOr<uint64_t> Size() override {
    MutexLock lock(state_->mutex);
    return inode_->content.size();
  }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<Inode> inode_;
};

FaultyFiles::FaultyFiles(uint64_t seed) : state_(std::make_shared<State>()) {
  MutexLock lock(state_->mutex);
  state_->random.seed(seed);
}

FaultyFiles::~FaultyFiles() = default;

StatusOr<std::unique_ptr<storage::File>> FaultyFiles::Open(const std::string& raw_path,
                                                           bool create) {
  const std::string path = Clean(raw_path);
  MutexLock lock(state_->mutex);
  auto it = state_->names.find(path);
  if (it == state_->names.end()) {
    if (!create || state_->directories.contains(path)) return NotFound("open " + path);
    if (!state_->directories.contains(DirectoryOf(path))) return NotFound("open " + path);
    it = state_->names.emplace(path, std::make_shared<Inode>()).first;
    state_->unsynced_names.push_back({path, it->second, {}});
    state_->Count();
  }
  return std::unique_ptr<storage::File>(std::make_unique<OpenFile>(state_, it->second));
}

StatusOr<std::vector<std::string>> FaultyFiles::List(const std::string& raw_directory) {
  const std::string directory = Clean(raw_directory);
  MutexLock lock(state_->mutex);
  if (!state_->directories.contains(directory)) return NotFound("list " + directory);
  std::vector<std::string> out;
  for (const auto& [path, inode] : state_->names) {
    if (DirectoryOf(path) == directory) out.push_back(path.substr(directory.size() + 1));
  }
  return out;
}

Status FaultyFiles::Rename(const std::string& raw_from, const std::string& raw_to) {
  const std::string from = Clean(raw_from);
  const std::string to = Clean(raw_to);
  MutexLock lock(state_->mutex);
  auto it = state_->names.find(from);
  if (it == state_->names.end()) return NotFound("rename " + from);
  std::shared_ptr<Inode> inode = it->second;
  state_->names.erase(it);
  state_->names[to] = inode;
  state_->unsynced_names.push_back({to, inode, from});
  state_->Count();
  return OkStatus();
}

Status FaultyFiles::Remove(const std::string& raw_path) {
  const std::string path = Clean(raw_path);
  MutexLock lock(state_->mutex);
  if (state_->names.erase(path) == 0) return NotFound("remove " + path);
  state_->unsynced_names.push_back({path, nullptr, {}});
  state_->Count();
  return OkStatus();
}

Status FaultyFiles::MakeDirectory(const std::string& raw_path) {
  const std::string path = Clean(raw_path);
  MutexLock lock(state_->mutex);
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at == path.size() || path[at] == '/') state_->directories.insert(path.substr(0, at));
  }
  return OkStatus();
}

Status FaultyFiles::SyncDirectory(const std::string& raw_path) {
  const std::string path = Clean(raw_path);
  MutexLock lock(state_->mutex);
  state_->Count();
  std::erase_if(state_->unsynced_names, [&](const NameChange& change) {
    if (DirectoryOf(change.path) != path) return false;
    Apply(change, state_->durable_names);
    return true;
  });
  return OkStatus();
}

StatusOr<uint64_t> FaultyFiles::FreeBytes(const std::string&) {
  MutexLock lock(state_->mutex);
  if (state_->capacity == UINT64_MAX) return UINT64_MAX;
  uint64_t used = state_->Used();
  return used >= state_->capacity ? 0 : state_->capacity - used;
}

void FaultyFiles::CrashAfter(uint64_t operations) {
  MutexLock lock(state_->mutex);
  state_->countdown = operations;
}

void FaultyFiles::CrashNow() {
  MutexLock lock(state_->mutex);
  state_->Crash();
}

bool FaultyFiles::crashed() const { return state_->crashed; }

void FaultyFiles::Restart() {
  MutexLock lock(state_->mutex);
  MR_CHECK(state_->crashed);
  state_->names.clear();
  for (auto& [path, content] : state_->image) {
    auto inode = std::make_shared<Inode>();
    inode->durable = content;
    inode->content = std::move(content);
    state_->names[path] = std::move(inode);
  }
  state_->durable_names = state_->names;
  state_->image.clear();
  state_->unsynced_names.clear();
  state_->countdown = 0;
  state_->crashed = false;
}

void FaultyFiles::SetCapacity(uint64_t bytes) {
  MutexLock lock(state_->mutex);
  state_->capacity = bytes;
}

uint64_t FaultyFiles::UsedBytes() const {
  MutexLock lock(state_->mutex);
  return state_->Used();
}

void FaultyFiles::SetSyncDelay(std::chrono::microseconds delay) {
  MutexLock lock(state_->mutex);
  state_->sync_delay = delay;
}

void FaultyFiles::Damage(const std::string& path, uint64_t offset) {
  MutexLock lock(state_->mutex);
  Inode& inode = *state_->names.at(path);
  MR_CHECK(offset < inode.content.size());
  inode.content[offset] ^= 1;
  inode.durable.resize(std::max(inode.durable.size(), inode.content.size()), '\0');
  inode.durable[offset] ^= 1;
}

}  // namespace millrace::testing
