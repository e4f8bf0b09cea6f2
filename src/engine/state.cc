#include "engine/state.h"

#include <algorithm>
#include <set>

#include "engine/hash.h"
#include "engine/rows.h"
#include "storage/encoding.h"
#include "windowing/wire.h"

namespace millrace::engine {
namespace {

using storage::Table;

constexpr char kBagKind = 'b';
constexpr char kMapKind = 'm';
constexpr char kListKind = 'o';
constexpr size_t kSingleDeletes = 32;  // above, a range deletion costs less

std::string SortKey(int64_t key) {
  std::string out;
  windowing::AppendInstant(out, key);
  return out;
}

// The part behind `base` up to the end of one varint-prefixed string.
bool CutName(std::string_view row, std::string_view* name) {
  storage::ByteReader in(row);
  *name = in.String();
  return in.ok();
}

bool InRanges(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t key) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [key](const auto& range) { return key >= range.first && key < range.second; });
}

}  // namespace

std::string SideInputPrefix(uint64_t job, StageId stage, size_t side_input) {
  return NumberedRow(RangePrefix(job, stage.value, 0, RowKind::kSide), side_input);
}

StateOverlay::StateOverlay(storage::Store& store, Executor& pool,
                           std::shared_ptr<const StatePlace> place, uint64_t attempt,
                           size_t page_bytes)
    : store_(store),
      place_(std::move(place)),
      attempt_(attempt),
      page_bytes_(page_bytes),
      executor_(pool) {}

void StateOverlay::Get(StateKey key, std::string continuation,
                       Callback<void(StatusOr<StatePage>)> done) {
  executor_.Post([self = shared_from_this(), key = std::move(key),
                  continuation = std::move(continuation), done = std::move(done)]() mutable {
    done(self->closed_ ? Cancelled("the bundle has ended") : self->Read(key, continuation));
  });
}

void StateOverlay::Append(StateKey key, std::string data, Callback<void(Status)> done) {
  executor_.Post([self = shared_from_this(), key = std::move(key), data = std::move(data),
                  done = std::move(done)]() mutable {
    done(self->closed_ ? Cancelled("the bundle has ended") : self->Write(key, std::move(data)));
  });
}

void StateOverlay::Clear(StateKey key, Callback<void(Status)> done) {
  executor_.Post(
      [self = shared_from_this(), key = std::move(key), done = std::move(done)]() mutable {
        done(self->closed_ ? Cancelled("the bundle has ended") : self->Erase(key));
      });
}

void StateOverlay::Close(Callback<void(StatusOr<storage::WriteBatch>)> done) {
  executor_.Post([self = shared_from_this(), done = std::move(done)]() mutable {
    self->closed_ = true;
    done(self->Collect());
  });
}

const storage::ReadView* StateOverlay::View() {
  if (!view_) view_ = store_.NewReadView();
  return view_.get();
}

// Kind, transform, name, window and key, each ended, so that no cell's rows start with another's
// prefix.
std::string StateOverlay::Base(const StateKey& key, char kind) const {
  const auto range = static_cast<uint16_t>(StableHash(key.key) % place_->ranges);
  std::string base = RangePrefix(place_->job, place_->stage.value, range, RowKind::kState);
  base.push_back(kind);
  for (const std::string* part : {&key.transform, &key.name, &key.window, &key.key})
    storage::PutString(base, *part);
  return base;
}

StatusOr<std::string> StateOverlay::SideBase(const StateKey& key) const {
  for (size_t i = 0; i < place_->side_inputs.size(); ++i) {
    if (place_->side_inputs[i] != std::make_pair(key.transform, key.name)) continue;
    std::string base = SideInputPrefix(place_->job, place_->stage, i);
    storage::PutString(base, key.window);
    return base;
  }
  return NotFound("side input \"" + key.name + "\" of transform \"" + key.transform +
                  "\" is not in the stage");
}

std::string StateOverlay::RowName(std::string prefix, uint32_t index) const {
  windowing::AppendBigEndian64(prefix, attempt_);
  windowing::AppendBigEndian32(prefix, index);
  return prefix;
}

// ---- Reads.

StatusOr<StatePage> StateOverlay::Read(const StateKey& key, const std::string& continuation) {
  switch (key.kind) {
    case StateKind::kBag:
      return ReadCell(Base(key, kBagKind), continuation);
    case StateKind::kMultimap: {
      std::string prefix = Base(key, kMapKind);
      storage::PutString(prefix, key.map_key);
      return ReadCell(prefix, continuation);
    }
    case StateKind::kMultimapKeys:
      return ReadKeys(Base(key, kMapKind), continuation);
    case StateKind::kOrderedList:
      return ReadList(key, continuation);
    case StateKind::kIterableSideInput: {
      MR_ASSIGN_OR_RETURN(std::string base, SideBase(key));
      return ReadCell(base, continuation);
    }
    case StateKind::kMultimapSideInput: {
      MR_ASSIGN_OR_RETURN(std::string base, SideBase(key));
      storage::PutString(base, key.key);
      return ReadCell(base, continuation);
    }
    case StateKind::kMultimapKeysSideInput: {
      MR_ASSIGN_OR_RETURN(std::string base, SideBase(key));
      return ReadKeys(base, continuation);
    }
    default:
      return Unimplemented("this server does not serve this kind of state key");
  }
}

// What is in Store, then the bundle's own appends. A token is 's' and the next row, or 'o' and the
// next append.
StatusOr<StatePage> StateOverlay::ReadCell(const std::string& prefix,
                                           const std::string& continuation) {
  StatePage page;
  auto own = cells_.find(prefix);
  bool hidden = own != cells_.end() && own->second.cleared;
  for (const auto& [base, cleared] : maps_cleared_) hidden = hidden || prefix.starts_with(base);
  size_t next = 0;
  if (!continuation.empty() && continuation[0] == 'o') {
    hidden = true;
    storage::ByteReader in(std::string_view(continuation).substr(1));
    next = in.Varint();
  }
  if (!hidden) {
    const std::string from = continuation.empty() ? prefix : continuation.substr(1);
    auto it = store_.NewIterator(Table::kState, prefix, PrefixEnd(prefix), View());
    for (it->Seek(from); it->Valid(); it->Next()) {
      if (page.data.size() >= page_bytes_) {
        page.continuation = "s" + std::string(it->key());
        return page;
      }
      page.data.append(it->value());
    }
    MR_RETURN_IF_ERROR(it->status());
  }
  if (own == cells_.end()) return page;
  for (; next < own->second.appends.size(); ++next) {
    if (page.data.size() >= page_bytes_) {
      page.continuation = "o";
      storage::PutVarint(page.continuation, next);
      return page;
    }
    page.data.append(own->second.appends[next]);
  }
  return page;
}

// Names that have values, each once, in the order of rows. A token is the last name given.
StatusOr<StatePage> StateOverlay::ReadKeys(const std::string& base,
                                           const std::string& continuation) {
  std::set<std::string> rows;  // row forms of names: their prefix included
  const std::string base_end = PrefixEnd(base);
  for (auto it = cells_.lower_bound(base); it != cells_.end() && it->first.starts_with(base);
       ++it) {
    if (!it->second.appends.empty()) rows.insert(it->first);
  }
  StatePage page;
  std::string last = continuation;
  const auto give = [&](const std::string& row) {
    if (page.data.size() >= page_bytes_) {
      page.continuation = last;
      return false;
    }
    std::string_view name;
    CutName(std::string_view(row).substr(base.size()), &name);
    page.data.append(name);
    last = row;
    return true;
  };
  auto own = continuation.empty() ? rows.begin() : rows.upper_bound(continuation);
  if (!maps_cleared_.contains(base)) {
    auto it = store_.NewIterator(Table::kState, base, base_end, View());
    it->Seek(continuation.empty() ? base : PrefixEnd(continuation));
    while (it->Valid()) {
      std::string_view name;
      if (!CutName(it->key().substr(base.size()), &name))
        return DataLoss("engine: malformed row of state");
      std::string row = base;
      storage::PutString(row, name);
      for (; own != rows.end() && *own < row; ++own) {
        if (!give(*own)) return page;
      }
      if (own != rows.end() && *own == row) ++own;
      auto cell = cells_.find(row);
      if (cell == cells_.end() || !cell->second.cleared || !cell->second.appends.empty()) {
        if (!give(row)) return page;
      }
      it->Seek(PrefixEnd(row));
    }
    MR_RETURN_IF_ERROR(it->status());
  }
  for (; own != rows.end(); ++own) {
    if (!give(*own)) return page;
  }
  return page;
}

// Merged by sort key; what is in Store goes first among equals. A token is the next sort key; pages
// end between sort keys.
StatusOr<StatePage> StateOverlay::ReadList(const StateKey& key, const std::string& continuation) {
  const std::string base = Base(key, kListKind);
  int64_t start = key.range_start;
  if (!continuation.empty()) {
    std::string_view in = continuation;
    if (!windowing::ParseInstant(in, &start))
      return InvalidArgument("malformed continuation token");
  }
  const List& own = lists_[base];
  StatePage page;
  int64_t last = start;
  const auto full = [&](int64_t at) {
    if (page.data.size() < page_bytes_ || at == last) {
      last = at;
      return false;
    }
    page.continuation = SortKey(at);
    return true;
  };
  auto mine = own.entries.lower_bound(start);
  auto it = store_.NewIterator(Table::kState, base + SortKey(start), base + SortKey(key.range_end),
                               View());
  for (it->Seek(base + SortKey(start)); it->Valid(); it->Next()) {
    std::string_view name = it->key().substr(base.size());
    int64_t at = 0;
    if (!windowing::ParseInstant(name, &at)) return DataLoss("engine: malformed row of state");
    for (; mine != own.entries.end() && mine->first < at; ++mine) {
      if (full(mine->first)) return page;
      page.data.append(mine->second);
    }
    if (InRanges(own.cleared, at)) continue;
    if (full(at)) return page;
    page.data.append(it->value());
  }
  MR_RETURN_IF_ERROR(it->status());
  for (; mine != own.entries.end() && mine->first < key.range_end; ++mine) {
    if (full(mine->first)) return page;
    page.data.append(mine->second);
  }
  return page;
}

// ---- Writes.

Status StateOverlay::Write(const StateKey& key, std::string data) {
  if (key.kind == StateKind::kOrderedList) return WriteList(key, data);
  std::string prefix;
  if (key.kind == StateKind::kBag) {
    prefix = Base(key, kBagKind);
  } else if (key.kind == StateKind::kMultimap) {
    prefix = Base(key, kMapKind);
    storage::PutString(prefix, key.map_key);
  } else {
    return InvalidArgument("this kind of state key takes no append");
  }
  if (!data.empty()) cells_[prefix].appends.push_back(std::move(data));
  return OkStatus();
}

Status StateOverlay::WriteList(const StateKey& key, std::string_view data) {
  List& list = lists_[Base(key, kListKind)];
  while (!data.empty()) {
    const std::string_view before = data;
    int64_t at = 0;
    std::string_view value;
    if (!windowing::ParseVarint(data, &at) || !windowing::ParseBytes(data, &value)) {
      return InvalidArgument("an entry of an ordered list is malformed");
    }
    list.entries.emplace(at, before.substr(0, before.size() - data.size()));
  }
  return OkStatus();
}

Status StateOverlay::Erase(const StateKey& key) {
  switch (key.kind) {
    case StateKind::kBag:
      cells_[Base(key, kBagKind)] = Cell{true, {}};
      return OkStatus();
    case StateKind::kMultimap: {
      std::string prefix = Base(key, kMapKind);
      storage::PutString(prefix, key.map_key);
      cells_[prefix] = Cell{true, {}};
      return OkStatus();
    }
    case StateKind::kMultimapKeys:
    case StateKind::kMultimapEntries: {
      const std::string base = Base(key, kMapKind);
      maps_cleared_[base] = true;
      std::erase_if(cells_, [&base](const auto& cell) { return cell.first.starts_with(base); });
      return OkStatus();
    }
    case StateKind::kOrderedList: {
      List& list = lists_[Base(key, kListKind)];
      list.cleared.emplace_back(key.range_start, key.range_end);
      list.entries.erase(list.entries.lower_bound(key.range_start),
                         list.entries.lower_bound(key.range_end));
      return OkStatus();
    }
    default:
      return InvalidArgument("this kind of state key cannot be cleared");
  }
}

Status StateOverlay::DeleteRows(const std::string& begin, const std::string& end,
                                storage::WriteBatch& batch) {
  std::vector<std::string> rows;
  auto it = store_.NewIterator(Table::kState, begin, end, nullptr);
  for (it->Seek(begin); it->Valid() && rows.size() <= kSingleDeletes; it->Next())
    rows.emplace_back(it->key());
  MR_RETURN_IF_ERROR(it->status());
  if (rows.size() > kSingleDeletes) {
    batch.DeleteRange(Table::kState, begin, end);
  } else {
    for (const std::string& row : rows) batch.Delete(Table::kState, row);
  }
  return OkStatus();
}

StatusOr<storage::WriteBatch> StateOverlay::Collect() {
  storage::WriteBatch batch;
  for (const auto& [base, cleared] : maps_cleared_)
    MR_RETURN_IF_ERROR(DeleteRows(base, PrefixEnd(base), batch));
  for (auto& [prefix, cell] : cells_) {
    if (cell.cleared) MR_RETURN_IF_ERROR(DeleteRows(prefix, PrefixEnd(prefix), batch));
    for (uint32_t i = 0; i < cell.appends.size(); ++i)
      batch.Put(Table::kState, RowName(prefix, i), cell.appends[i]);
  }
  for (auto& [base, list] : lists_) {
    for (const auto& [start, end] : list.cleared) {
      if (start < end)
        MR_RETURN_IF_ERROR(DeleteRows(base + SortKey(start), base + SortKey(end), batch));
    }
    uint32_t index = 0;
    for (const auto& [at, entry] : list.entries)
      batch.Put(Table::kState, RowName(base + SortKey(at), index++), entry);
  }
  view_.reset();
  return batch;
}

}  // namespace millrace::engine
