#include "storage/commit_log/reclaimer.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"

namespace millrace::storage {
namespace {

constexpr size_t kAskAtOnce = 4096;     // entries in one question to Liveness
constexpr size_t kMoveBytes = 1 << 20;  // bodies in one relocation
constexpr auto kRetiredPause = std::chrono::milliseconds(5);

// An answer that comes on any thread, perhaps after the asker has gone.
template <typename T>
struct Answer {
  Mutex mutex;
  CondVar changed;
  std::optional<T> value;

  void Give(T given) {
    MutexLock lock(mutex);
    value = std::move(given);
    changed.NotifyAll();
  }
  // Nullopt if `stopping` became true first.
  std::optional<T> Wait(const std::atomic<bool>& stopping) {
    MutexLock lock(mutex);
    while (!value && !stopping) changed.WaitFor(mutex, std::chrono::milliseconds(20));
    return std::move(value);
  }
};

}  // namespace

SpaceReclaimer::SpaceReclaimer(SegmentTable& table, LogWriter& writer, SpareSegments& spares,
                               Options options)
    : table_(table), writer_(writer), spares_(spares), options_(options) {
  last_pass_at_ = writer.durable_end();
  last_pass_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "log-space");
    Work();
  });
}

void SpaceReclaimer::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void SpaceReclaimer::SetReplayPosition(Lsn lsn) {
  {
    MutexLock lock(mutex_);
    replay_position_ = std::max(replay_position_, lsn);
    changed_segments_ = true;
  }
  changed_.NotifyAll();
}

void SpaceReclaimer::SetLiveness(std::shared_ptr<Liveness> liveness) {
  {
    MutexLock lock(mutex_);
    liveness_ = std::move(liveness);
    changed_segments_ = true;
  }
  changed_.NotifyAll();
}

void SpaceReclaimer::MayHaveDied() {
  {
    MutexLock lock(mutex_);
    if (may_have_died_) return;
    may_have_died_ = true;
  }
  changed_.NotifyAll();
}

void SpaceReclaimer::Wake() {
  {
    MutexLock lock(mutex_);
    changed_segments_ = true;
  }
  changed_.NotifyAll();
}

bool SpaceReclaimer::Due() {
  if (changed_segments_) return true;
  if (!may_have_died_) return false;
  bool grown = writer_.durable_end() >= last_pass_at_ + options_.growth_bytes;
  auto pause = spares_.HasRoomToGrow() ? options_.idle_pause : options_.idle_pause / 10;
  return grown || std::chrono::steady_clock::now() - last_pass_ >= pause;
}

void SpaceReclaimer::Work() {
  bool more = false;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !more && !Due() && retired_.empty()) {
        if (may_have_died_) {
          changed_.WaitFor(mutex_,
                           std::max(options_.idle_pause / 10, std::chrono::milliseconds(1)));
        } else {
          changed_.Wait(mutex_);
        }
      }
      if (!stopping_ && !retired_.empty() && !more && !Due()) {
        changed_.WaitFor(mutex_, kRetiredPause);
      }
      if (stopping_) return;
    }
    RecycleRetired();
    {
      MutexLock lock(mutex_);
      if (!more && !Due()) continue;
      may_have_died_ = false;
      changed_segments_ = false;
      last_pass_at_ = writer_.durable_end();
      last_pass_ = std::chrono::steady_clock::now();
    }
    more = Pass();
    RecycleRetired();
  }
}

bool SpaceReclaimer::Pass() {
  std::shared_ptr<Liveness> liveness;
  Lsn replay_position;
  {
    MutexLock lock(mutex_);
    liveness = liveness_;
    replay_position = replay_position_;
  }
  bool freed = false;
  int left = options_.segments_per_pass;
  for (SegmentPtr& segment : table_.Reclaimable(replay_position)) {
    if (left-- == 0 || stopping()) break;
    bool no_entries = segment->pages.empty();
    if (!no_entries && !liveness) continue;
    if (!no_entries) {
      auto census = Count(segment, *liveness);
      if (!census.ok()) {
        MR_LOG(kError, "space of {} cannot be freed: {}", segment->path,
               MessageOf(census.status()));
        table_.NoteCount(segment, segment->live_bytes);
        continue;
      }
      if (stopping()) return false;
      if (!census->living.empty() || !census->complete) {
        if (!WorthMoving(segment, *census)) continue;
        if (!FaultPoint("storage.recycle_too_early") && !Relocate(segment, *census)) continue;
      }
    }
    Retire(std::move(segment));
    freed = true;
  }
  return freed;
}

// Little lives, or less than half lives and it is not dying fast by itself, or room is short.
bool SpaceReclaimer::WorthMoving(const SegmentPtr& segment, const Census& census) {
  bool steady =
      table_.NoteCount(segment, census.complete ? census.live_bytes
                                                : std::max(census.live_bytes, segment->live_bytes));
  if (!census.complete) return false;
  if (census.live_bytes <= segment->capacity / 16) return true;
  return steady || !spares_.HasRoomToGrow();
}

StatusOr<SpaceReclaimer::Census> SpaceReclaimer::Count(const SegmentPtr& segment,
                                                       Liveness& liveness) {
  Census census;
  std::vector<std::pair<TopicPartition, IndexEntry>> asking;
  auto ask = [&] {
    bool go_on = CountPage(asking, liveness, census);
    asking.clear();
    if (census.live_bytes > segment->capacity / 2) census.complete = false;
    return go_on && census.complete;
  };
  bool going = true;
  MR_RETURN_IF_ERROR(table_.VisitEntries(
      segment, [&](TopicPartition partition, const std::vector<IndexEntry>& entries) {
        for (const IndexEntry& entry : entries) asking.emplace_back(partition, entry);
        if (asking.size() >= kAskAtOnce) going = ask();
        return going;
      }));
  if (going && !asking.empty()) ask();
  return census;
}

bool SpaceReclaimer::CountPage(const std::vector<std::pair<TopicPartition, IndexEntry>>& page,
                               Liveness& liveness, Census& census) {
  std::vector<TopicEntry> entries;
  entries.reserve(page.size());
  for (const auto& [partition, entry] : page) {
    entries.push_back(
        {partition, entry.first_offset, entry.count, {entry.publish_micros}, SharedBytes()});
  }
  auto answer = std::make_shared<Answer<std::vector<uint32_t>>>();
  liveness.CountLive(std::move(entries),
                     [answer](std::vector<uint32_t> live) { answer->Give(std::move(live)); });
  auto live = answer->Wait(stopping_);
  if (!live) return false;
  MR_CHECK(live->size() == page.size());
  for (size_t i = 0; i < page.size(); ++i) {
    if ((*live)[i] == 0) continue;
    census.live_bytes += page[i].second.length;
    census.living.push_back(page[i]);
  }
  return true;
}

bool SpaceReclaimer::Relocate(const SegmentPtr& segment, const Census& census) {
  for (size_t from = 0; from < census.living.size();) {
    std::vector<TopicEntry> moving;
    size_t bytes = 0;
    while (from < census.living.size() && bytes < kMoveBytes) {
      TopicPartition partition = census.living[from].first;
      std::vector<SegmentTable::FoundEntry> found;
      while (from < census.living.size() && census.living[from].first == partition &&
             bytes < kMoveBytes) {
        bytes += census.living[from].second.length + 64;
        found.push_back({segment, census.living[from++].second});
      }
      auto bodies = SegmentTable::ReadBodies(partition, found);
      if (!bodies.ok()) {
        MR_LOG(kError, "cannot move entries: {}", MessageOf(bodies.status()));
        return false;
      }
      std::move(bodies->begin(), bodies->end(), std::back_inserter(moving));
    }
    auto durable = std::make_shared<Answer<bool>>();
    writer_.AppendRelocated(std::move(moving), [durable] { durable->Give(true); });
    if (!durable->Wait(stopping_)) return false;
  }
  return true;
}

void SpaceReclaimer::Retire(SegmentPtr segment) {
  table_.Remove(segment);
  retired_.push_back(std::move(segment));
}

// Those that no reader holds any more. New ones cannot come: the table does not know these
// segments.
void SpaceReclaimer::RecycleRetired() {
  std::erase_if(retired_, [&](SegmentPtr& segment) {
    if (segment.use_count() > 1) return false;
    spares_.Recycle({segment->path, segment->file, segment->capacity, nullptr});
    return true;
  });
}

}  // namespace millrace::storage
