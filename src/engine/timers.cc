#include "engine/timers.h"

#include <utility>

#include "engine/records.h"
#include "engine/rows.h"

namespace millrace::engine {
namespace {

using storage::Table;
using windowing::Millis;

std::string IdentityOf(const Timer& timer) {
  std::string identity;
  storage::PutString(identity, timer.key);
  storage::PutString(identity, timer.transform);
  storage::PutString(identity, timer.family);
  storage::PutString(identity, timer.tag);
  AppendWindowTo(identity, timer.window);
  return identity;
}

}  // namespace

void TimerTable::Remove(const std::string& identity, const Entry& entry) {
  const std::pair<Millis, std::string> place(entry.timer.fire, identity);
  (entry.event_time ? event_ : processing_).erase(place);
  auto key = by_key_.find(entry.timer.key);
  if (key != by_key_.end()) {
    (entry.event_time ? key->second.event : key->second.processing).erase(place);
    if (key->second.event.empty() && key->second.processing.empty()) by_key_.erase(key);
  }
  if (entry.timer.hold <= windowing::kMaxTimestamp) holds_.Remove(entry.timer.hold);
}

void TimerTable::Apply(const Timer& change, bool event_time) {
  const std::string identity = IdentityOf(change);
  auto it = entries_.find(identity);
  const bool had_row = it != entries_.end() && it->second.has_row;
  if (it != entries_.end()) Remove(identity, it->second);
  if (change.clear) {
    if (it != entries_.end()) entries_.erase(it);
    dirty_.erase(identity);
    if (had_row) removed_.insert(identity);
    return;
  }
  entries_[identity] = Entry{change, event_time, had_row};
  KeyTimers& key = by_key_[change.key];
  (event_time ? key.event : key.processing).insert({change.fire, identity});
  (event_time ? event_ : processing_).insert({change.fire, identity});
  if (change.hold <= windowing::kMaxTimestamp) holds_.Add(change.hold);
  dirty_.insert(identity);
  removed_.erase(identity);
  if (change.fire <= (event_time ? event_upto_ : processing_upto_)) new_keys_.push_back(change.key);
}

std::vector<std::string> TimerTable::Advance(Millis input_watermark, Millis now) {
  std::vector<std::string> keys = std::exchange(new_keys_, {});
  const auto collect = [this, &keys](const Order& order, Millis& upto, Millis to) {
    if (to <= upto) return;
    for (auto it = order.lower_bound({windowing::AddMillis(upto, 1), std::string()});
         it != order.end() && it->first <= to; ++it) {
      keys.push_back(entries_.find(it->second)->second.timer.key);
    }
    upto = to;
  };
  collect(event_, event_upto_, input_watermark);
  collect(processing_, processing_upto_, now);
  return keys;
}

std::vector<Timer> TimerTable::DueOf(const std::string& key) const {
  std::vector<Timer> due;
  auto it = by_key_.find(key);
  if (it == by_key_.end()) return due;
  const auto first_of = [this, &due](const Order& order, Millis upto) {
    if (order.empty() || order.begin()->first > upto) return;
    const Millis time = order.begin()->first;
    for (auto at = order.begin(); at != order.end() && at->first == time; ++at)
      due.push_back(entries_.find(at->second)->second.timer);
  };
  first_of(it->second.event, event_upto_);
  if (due.empty()) first_of(it->second.processing, processing_upto_);
  return due;
}

std::optional<Millis> TimerTable::NextProcessing() const {
  auto it = processing_.lower_bound({windowing::AddMillis(processing_upto_, 1), std::string()});
  if (it == processing_.end()) return std::nullopt;
  return it->first;
}

void TimerTable::Checkpoint(storage::WriteBatch& batch) {
  for (const std::string& identity : removed_) batch.Delete(Table::kTimers, row_prefix_ + identity);
  removed_.clear();
  for (const std::string& identity : dirty_) {
    Entry& entry = entries_.find(identity)->second;
    std::string value(1, entry.event_time ? 1 : 0);
    AppendTimerTo(value, entry.timer);
    batch.Put(Table::kTimers, row_prefix_ + identity, value);
    entry.has_row = true;
  }
  dirty_.clear();
}

Status TimerTable::LoadRows(storage::Store& store) {
  auto it = store.NewIterator(Table::kTimers, row_prefix_, PrefixEnd(row_prefix_));
  for (it->Seek(row_prefix_); it->Valid(); it->Next()) {
    storage::ByteReader in(it->value());
    const bool event_time = in.Byte() != 0;
    Timer timer;
    if (!ParseTimerFrom(in, &timer)) return DataLoss("engine: malformed row of a timer");
    Apply(timer, event_time);
    entries_.find(IdentityOf(timer))->second.has_row = true;
  }
  dirty_.clear();
  return it->status();
}

}  // namespace millrace::engine
