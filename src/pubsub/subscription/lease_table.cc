#include "pubsub/subscription/lease_table.h"

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "pubsub/subscription/ack_blocks.h"

namespace millrace::pubsub {
namespace {

constexpr uint64_t kBorder = AckBlocks::kBlock;  // no run crosses it, so its acks concern one block

int64_t TickOf(SteadyTime deadline) {
  return deadline.micros / LeaseTable::kTickMicros +
         (deadline.micros % LeaseTable::kTickMicros > 0);
}

}  // namespace

LeaseTable::~LeaseTable() = default;

uint64_t LeaseTable::Open(uint64_t first, SessionId session, SteadyTime deadline, bool again) {
  auto owned = std::make_unique<Run>();
  Run* run = owned.get();
  run->epoch = next_epoch_++;
  run->first = first;
  run->session = session;
  run->tick = TickOf(deadline);
  run->again = again;
  runs_.emplace(run->epoch, std::move(owned));
  LinkDue(run);
  Run*& head = sessions_[session];
  run->session_next = head;
  if (head != nullptr) head->session_previous = run;
  head = run;
  if (!again) by_first_.insert_or_assign(by_first_.end(), first, run);
  newest_ = run;
  return run->epoch;
}

bool LeaseTable::Add(uint64_t offset, uint32_t size) {
  Run* run = newest_;
  uint64_t position = offset - run->first;
  if (position >= kRunMax || position > run->sizes.size() + 64) return false;
  if (offset / kBorder != run->first / kBorder) return false;
  run->sizes.resize(position);
  run->sizes.push_back(size);
  if (position / 64 >= run->leased.size()) run->leased.resize(position / 64 + 1);
  run->leased[position / 64] |= uint64_t{1} << (position % 64);
  ++run->left;
  ++outstanding_;
  if (run->again) by_offset_[offset] = run;
  return true;
}

LeaseTable::Run* LeaseTable::Find(uint64_t epoch) {
  if (found_ != nullptr && found_->epoch == epoch) return found_;
  auto it = runs_.find(epoch);
  if (it == runs_.end()) return nullptr;
  return found_ = it->second.get();
}

void LeaseTable::Release(uint64_t epoch, uint64_t first, uint32_t count, Visit visit) {
  Run* run = Find(epoch);
  if (run == nullptr) return;
  uint64_t run_end = run->first + run->sizes.size();
  uint64_t from = std::max(first, run->first), to = std::min(first + count, run_end);
  if (from < to) {
    End(run, static_cast<uint32_t>(from - run->first), static_cast<uint32_t>(to - run->first),
        visit);
  }
}

bool LeaseTable::ReleaseOffset(uint64_t offset, Visit visit) {
  Run* run = nullptr;
  if (auto it = by_offset_.find(offset); it != by_offset_.end()) {
    run = it->second;
  } else {
    auto after = by_first_.upper_bound(offset);
    if (after == by_first_.begin()) return false;
    run = std::prev(after)->second;
  }
  uint64_t position = offset - run->first;
  if (position >= run->sizes.size() || !run->Leased(static_cast<uint32_t>(position))) return false;
  End(run, static_cast<uint32_t>(position), static_cast<uint32_t>(position + 1), visit);
  return true;
}

void LeaseTable::ReleaseSession(SessionId session, Visit visit) {
  while (true) {
    auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    End(it->second, 0, static_cast<uint32_t>(it->second->sizes.size()), visit);
  }
}

void LeaseTable::End(Run* run, uint32_t from, uint32_t to, Visit visit) {
  uint32_t at = from;
  while (at < to) {
    // Skip to the next leased message, then take its neighbours.
    uint64_t word = run->leased[at / 64] & (~uint64_t{0} << (at % 64));
    if (word == 0) {
      at = (at / 64 + 1) * 64;
      continue;
    }
    uint32_t first = at / 64 * 64 + static_cast<uint32_t>(std::countr_zero(word));
    if (first >= to) break;
    uint32_t end = first;
    uint64_t bytes = 0;
    while (end < to && run->Leased(end)) {
      run->leased[end / 64] &= ~(uint64_t{1} << (end % 64));
      bytes += run->sizes[end];
      ++end;
    }
    run->left -= end - first;
    outstanding_ -= end - first;
    if (run->again) {
      for (uint32_t i = first; i < end; ++i) by_offset_.erase(run->first + i);
    }
    visit({run->first + first, end - first, bytes, run->session, &run->sizes[first]});
    at = end;
  }
  if (run->left == 0) Drop(run);
}

void LeaseTable::Drop(Run* run) {
  UnlinkDue(run);
  if (run->session_next != nullptr) run->session_next->session_previous = run->session_previous;
  if (run->session_previous != nullptr) {
    run->session_previous->session_next = run->session_next;
  } else if (run->session_next != nullptr) {
    sessions_[run->session] = run->session_next;
  } else {
    sessions_.erase(run->session);
  }
  if (!run->again) by_first_.erase(run->first);
  if (newest_ == run) newest_ = nullptr;
  if (found_ == run) found_ = nullptr;
  runs_.erase(run->epoch);
}

void LeaseTable::Extend(uint64_t epoch, uint64_t first, uint32_t count, SteadyTime deadline) {
  Run* run = Find(epoch);
  if (run == nullptr) return;
  uint64_t from = std::max(first, run->first);
  uint64_t to = std::min<uint64_t>(first + count, run->first + run->sizes.size());
  if (from >= to) return;
  int64_t tick = TickOf(deadline);
  uint32_t covered = 0;
  for (uint64_t o = from; o < to; ++o)
    covered += run->Leased(static_cast<uint32_t>(o - run->first));
  if (covered == 0) return;
  if (covered == run->left) {
    run->ticks.reset();
  } else {
    if (!run->ticks)
      run->ticks = std::make_unique<std::vector<int64_t>>(run->sizes.size(), run->tick);
    std::fill(run->ticks->begin() + (from - run->first), run->ticks->begin() + (to - run->first),
              tick);
    // A later deadline for some leaves the run's bound where it is: it is looked at once too early,
    // at most.
    if (tick >= run->tick) return;
  }
  if (run->tick == tick) return;
  UnlinkDue(run);
  run->tick = tick;
  LinkDue(run);
}

void LeaseTable::ReleaseDue(SteadyTime now, Visit visit) {
  int64_t now_tick = now.micros / kTickMicros;
  while (!due_.empty() && due_.begin()->first <= now_tick) {
    ReleaseDueOf(due_.begin()->second, now_tick, visit);
  }
}

void LeaseTable::ReleaseDueOf(Run* run, int64_t now_tick, Visit visit) {
  uint32_t size = static_cast<uint32_t>(run->sizes.size());
  if (!run->ticks) return End(run, 0, size, visit);
  int64_t earliest = INT64_MAX;
  std::vector<std::pair<uint32_t, uint32_t>> due;
  for (uint32_t i = 0; i < size; ++i) {
    if (!run->Leased(i)) continue;
    int64_t tick = (*run->ticks)[i];
    if (tick > now_tick) {
      earliest = std::min(earliest, tick);
    } else if (!due.empty() && due.back().second == i) {
      ++due.back().second;
    } else {
      due.emplace_back(i, i + 1);
    }
  }
  UnlinkDue(run);
  run->tick = earliest;
  LinkDue(run);
  uint64_t epoch = run->epoch;
  for (auto [from, to] : due) End(run, from, to, visit);  // drops the run with its last lease
  MR_CHECK(earliest != INT64_MAX || Find(epoch) == nullptr);
}

void LeaseTable::LinkDue(Run* run) {
  Run*& head = due_[run->tick];
  run->due_previous = nullptr;
  run->due_next = head;
  if (head != nullptr) head->due_previous = run;
  head = run;
}

void LeaseTable::UnlinkDue(Run* run) {
  if (run->due_next != nullptr) run->due_next->due_previous = run->due_previous;
  if (run->due_previous != nullptr) {
    run->due_previous->due_next = run->due_next;
  } else if (run->due_next != nullptr) {
    due_[run->tick] = run->due_next;
  } else {
    due_.erase(run->tick);
  }
}

void LeaseTable::Clear() {
  runs_.clear();
  due_.clear();
  sessions_.clear();
  by_first_.clear();
  by_offset_.clear();
  newest_ = found_ = nullptr;
  outstanding_ = 0;
}

SteadyTime LeaseTable::NextDeadline() const {
  if (due_.empty()) return SteadyTime::Max();
  return {due_.begin()->first * kTickMicros};
}

}  // namespace millrace::pubsub
