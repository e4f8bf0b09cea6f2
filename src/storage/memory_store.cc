#include "storage/memory_store.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace millrace::storage {
namespace {

struct Version {
  uint64_t seq;
  std::optional<std::string> value;  // nullopt: deleted
};
using Versions = std::vector<Version>;  // oldest first, never empty
using Map = std::map<std::string, Versions, std::less<>>;

const std::optional<std::string>* Find(const Versions& versions, uint64_t seq) {
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    if (it->seq <= seq) return &it->value;
  }
  return nullptr;
}

}  // namespace

struct MemoryStore::State {
  Mutex mutex;
  std::array<Map, kTableCount> tables MR_GUARDED_BY(mutex);
  uint64_t seq MR_GUARDED_BY(mutex) = 0;
  std::multiset<uint64_t> views MR_GUARDED_BY(mutex);  // sequence numbers that are being looked at
  // Keys deleted while a view could still see them, to be erased once none can.
  struct Grave {
    uint64_t seq;
    int table;
    std::string key;
  };
  std::deque<Grave> graves MR_GUARDED_BY(mutex);
  bool keep_flushed MR_GUARDED_BY(mutex) = false;
  uint64_t flushed_seq MR_GUARDED_BY(mutex) = 0;

  uint64_t OldestNeeded() MR_REQUIRES(mutex) {
    uint64_t oldest = views.empty() ? seq : *views.begin();
    return keep_flushed ? std::min(oldest, flushed_seq) : oldest;
  }

  // Drops the versions older than the newest one that is visible at `oldest`.
  static void Prune(Versions& versions, uint64_t oldest) {
    size_t keep = versions.size() - 1;
    while (keep > 0 && versions[keep].seq > oldest) --keep;
    versions.erase(versions.begin(), versions.begin() + keep);
  }

  // A key whose only version is a tombstone everyone sees goes away.
  void Bury(int table, const std::string& key, uint64_t oldest) MR_REQUIRES(mutex) {
    auto it = tables[table].find(key);
    if (it == tables[table].end()) return;
    Prune(it->second, oldest);
    if (it->second.size() == 1 && !it->second[0].value && it->second[0].seq <= oldest) {
      tables[table].erase(it);
    }
  }

  void Set(int table, Map::iterator it, std::optional<std::string> value, uint64_t oldest)
      MR_REQUIRES(mutex) {
    if (!value) graves.push_back({seq, table, it->first});
    it->second.push_back({seq, std::move(value)});
    Prune(it->second, oldest);
  }

  void Apply(const WriteBatch::Op& op, uint64_t oldest) MR_REQUIRES(mutex) {
    int table = static_cast<int>(op.table);
    Map& map = tables[table];
    switch (op.kind) {
      case WriteBatch::Op::kPut: {
        Set(table, map.try_emplace(op.key).first, op.value, oldest);
        return;
      }
      case WriteBatch::Op::kDelete: {
        auto it = map.find(op.key);
        if (it != map.end() && it->second.back().value) Set(table, it, std::nullopt, oldest);
        return;
      }
      case WriteBatch::Op::kDeleteRange: {
        if (op.key >= op.value) return;  // an empty range
        auto end = map.lower_bound(op.value);
        for (auto it = map.lower_bound(op.key); it != end; ++it) {
          if (it->second.back().value) Set(table, it, std::nullopt, oldest);
        }
        return;
      }
    }
  }
};

class MemoryStore::View : public ReadView {
 public:
  View(std::shared_ptr<State> state, uint64_t seq) : state_(std::move(state)), seq_(seq) {}
  ~View() override {
    MutexLock lock(state_->mutex);
    state_->views.erase(state_->views.find(seq_));
  }
  // Registers the newest state as being looked at.
  static std::shared_ptr<const View> Make(const std::shared_ptr<State>& state) {
    MutexLock lock(state->mutex);
    state->views.insert(state->seq);
    return std::make_shared<View>(state, state->seq);
  }
  uint64_t seq() const { return seq_; }

 private:
  const std::shared_ptr<State> state_;
  const uint64_t seq_;
};

// Copies a run of entries at a time, so that the lock is not held between calls.
class MemoryStore::Cursor : public Iterator {
 public:
  Cursor(std::shared_ptr<State> state, int table, std::string_view begin, std::string_view end,
         uint64_t seq, std::shared_ptr<const View> own_view)
      : state_(std::move(state)),
        table_(table),
        begin_(begin),
        end_(end),
        seq_(seq),
        own_view_(std::move(own_view)) {
    Seek(begin_);
  }

  void Seek(std::string_view key) override {
    run_limit_ = 4;
    Fill(std::max(key, std::string_view(begin_)), /*after=*/false);
  }
  void Next() override {
    if (++at_ < run_.size()) return;
    run_limit_ = std::min<size_t>(run_limit_ * 4, 256);
    std::string last = std::move(run_.back().first);
    Fill(last, /*after=*/true);
  }
  bool Valid() const override { return at_ < run_.size(); }
  std::string_view key() const override { return run_[at_].first; }
  std::string_view value() const override { return run_[at_].second; }
  Status status() const override { return OkStatus(); }

 private:
  void Fill(std::string_view from, bool after) {
    run_.clear();
    at_ = 0;
    MutexLock lock(state_->mutex);
    const Map& map = state_->tables[table_];
    size_t bytes = 0;
    auto it = after ? map.upper_bound(from) : map.lower_bound(from);
    for (; it != map.end() && run_.size() < run_limit_ && bytes < kRunBytes; ++it) {
      if (!end_.empty() && it->first >= end_) break;
      const std::optional<std::string>* value = Find(it->second, seq_);
      if (value == nullptr || !*value) continue;
      run_.emplace_back(it->first, **value);
      bytes += it->first.size() + (*value)->size();
    }
  }

  static constexpr size_t kRunBytes = 256 << 10;
  const std::shared_ptr<State> state_;
  const int table_;
  const std::string begin_;
  const std::string end_;
  const uint64_t seq_;
  const std::shared_ptr<const View> own_view_;
  std::vector<std::pair<std::string, std::string>> run_;
  size_t at_ = 0;
  size_t run_limit_ = 4;
};

MemoryStore::MemoryStore(bool keep_flushed) : state_(std::make_shared<State>()) {
  MutexLock lock(state_->mutex);
  state_->keep_flushed = keep_flushed;
}

MemoryStore::~MemoryStore() = default;

StatusOr<std::optional<std::string>> MemoryStore::Get(Table table, std::string_view key,
                                                      const ReadView* view) {
  MutexLock lock(state_->mutex);
  const Map& map = state_->tables[static_cast<int>(table)];
  auto it = map.find(key);
  if (it == map.end()) return std::optional<std::string>();
  uint64_t seq = view == nullptr ? state_->seq : static_cast<const View*>(view)->seq();
  const std::optional<std::string>* value = Find(it->second, seq);
  return value == nullptr ? std::optional<std::string>() : *value;
}

std::unique_ptr<Iterator> MemoryStore::NewIterator(Table table, std::string_view begin,
                                                   std::string_view end, const ReadView* view) {
  std::shared_ptr<const View> own;
  if (view == nullptr) {
    own = View::Make(state_);
    view = own.get();
  }
  uint64_t seq = static_cast<const View*>(view)->seq();
  return std::make_unique<Cursor>(state_, static_cast<int>(table), begin, end, seq, std::move(own));
}

std::shared_ptr<const ReadView> MemoryStore::NewReadView() { return View::Make(state_); }

Status MemoryStore::Write(const WriteBatch& batch) {
  MutexLock lock(state_->mutex);
  ++state_->seq;
  uint64_t oldest = state_->OldestNeeded();
  for (const WriteBatch::Op& op : batch.ops()) state_->Apply(op, oldest);
  while (!state_->graves.empty() && state_->graves.front().seq <= oldest) {
    State::Grave grave = std::move(state_->graves.front());
    state_->graves.pop_front();
    state_->Bury(grave.table, grave.key, oldest);
  }
  return OkStatus();
}

Status MemoryStore::Flush() {
  MutexLock lock(state_->mutex);
  state_->flushed_seq = state_->seq;
  return OkStatus();
}

void MemoryStore::RevertToFlushed() {
  MutexLock lock(state_->mutex);
  MR_CHECK(state_->keep_flushed && state_->views.empty());
  for (Map& map : state_->tables) {
    for (auto it = map.begin(); it != map.end();) {
      Versions& versions = it->second;
      while (!versions.empty() && versions.back().seq > state_->flushed_seq) versions.pop_back();
      bool gone = versions.empty() || !versions.back().value;
      it = gone ? map.erase(it) : std::next(it);
    }
  }
  state_->graves.clear();
}

}  // namespace millrace::storage
