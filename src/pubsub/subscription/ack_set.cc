#include "pubsub/subscription/ack_set.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr char kRunsForm = 1;
constexpr char kBitmapForm = 2;

// Bits [first, last] of one word, both within 0 … 63.
uint64_t Mask(uint32_t first, uint32_t last) {
  return (~uint64_t{0} << first) & (~uint64_t{0} >> (63 - last));
}

}  // namespace

AckSet::AckSet(const AckSet& other) : size_(other.size_), runs_(other.runs_) {
  if (other.bitmap_) {
    bitmap_ = std::make_unique<Words>(*other.bitmap_);
  }
}

size_t AckSet::FindRun(uint32_t position) const {
  // Acks mostly come in order: the last run is tried first.
  if (!runs_.empty() && runs_.back().first <= position) {
    return position <= runs_.back().last ? runs_.size() - 1 : runs_.size();
  }
  return std::partition_point(runs_.begin(), runs_.end(),
                              [&](const Run& run) { return run.last < position; }) -
         runs_.begin();
}

bool AckSet::Contains(uint32_t position) const {
  if (bitmap_) return ((*bitmap_)[position / 64] >> (position % 64)) & 1;
  size_t i = FindRun(position);
  return i < runs_.size() && runs_[i].first <= position;
}

uint32_t AckSet::Add(uint32_t first, uint32_t end) {
  if (first >= end) return 0;
  uint32_t added = bitmap_ ? AddToBitmap(first, end - 1) : AddToRuns(first, end - 1);
  size_ += added;
  if (!bitmap_ && runs_.size() > kRunsMax) BecomeBitmap();
  if (size_ == kSize && bitmap_) {
    bitmap_.reset();
    runs_.assign(1, {0, kSize - 1});
  }
  return added;
}

uint32_t AckSet::AddToRuns(uint32_t first, uint32_t last) {
  // Runs from `begin` to before `end` touch or overlap [first, last] and melt into one.
  size_t begin = FindRun(first == 0 ? 0 : first - 1);
  size_t end = begin;
  uint32_t covered = 0, low = first, high = last;
  while (end < runs_.size() && runs_[end].first <= last + 1) {
    covered += runs_[end].last - runs_[end].first + 1;
    low = std::min<uint32_t>(low, runs_[end].first);
    high = std::max<uint32_t>(high, runs_[end].last);
    ++end;
  }
  Run merged{static_cast<uint16_t>(low), static_cast<uint16_t>(high)};
  if (begin == end) {
    runs_.insert(runs_.begin() + begin, merged);
  } else {
    runs_[begin] = merged;
    runs_.erase(runs_.begin() + begin + 1, runs_.begin() + end);
  }
  return high - low + 1 - covered;
}

uint32_t AckSet::AddToBitmap(uint32_t first, uint32_t last) {
  uint32_t added = 0;
  for (uint32_t word = first / 64; word <= last / 64; ++word) {
    uint32_t from = word == first / 64 ? first % 64 : 0;
    uint32_t to = word == last / 64 ? last % 64 : 63;
    uint64_t fresh = Mask(from, to) & ~(*bitmap_)[word];
    added += static_cast<uint32_t>(std::popcount(fresh));
    (*bitmap_)[word] |= fresh;
  }
  return added;
}

void AckSet::BecomeBitmap() {
  auto runs = std::move(runs_);
  runs_ = {};
  bitmap_ = std::make_unique<Words>();
  for (const Run& run : runs) AddToBitmap(run.first, run.last);
}

uint32_t AckSet::NextIn(uint32_t from) const {
  if (from >= kSize) return kSize;
  if (bitmap_) {
    uint64_t rest = (*bitmap_)[from / 64] & (~uint64_t{0} << (from % 64));
    for (uint32_t word = from / 64;;) {
      if (rest) return word * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      if (++word == kSize / 64) return kSize;
      rest = (*bitmap_)[word];
    }
  }
  size_t i = FindRun(from);
  return i == runs_.size() ? kSize : std::max<uint32_t>(from, runs_[i].first);
}

uint32_t AckSet::NextOut(uint32_t from) const {
  if (from >= kSize) return kSize;
  if (bitmap_) {
    uint64_t rest = ~(*bitmap_)[from / 64] & (~uint64_t{0} << (from % 64));
    for (uint32_t word = from / 64;;) {
      if (rest) return word * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      if (++word == kSize / 64) return kSize;
      rest = ~(*bitmap_)[word];
    }
  }
  size_t i = FindRun(from);
  // Runs never touch, so what follows a run is out.
  return i < runs_.size() && runs_[i].first <= from ? runs_[i].last + 1u : from;
}

uint32_t AckSet::Count(uint32_t first, uint32_t end) const {
  if (first >= end) return 0;
  uint32_t count = 0;
  if (bitmap_) {
    uint32_t last = end - 1;
    for (uint32_t word = first / 64; word <= last / 64; ++word) {
      uint32_t from = word == first / 64 ? first % 64 : 0;
      uint32_t to = word == last / 64 ? last % 64 : 63;
      count += static_cast<uint32_t>(std::popcount((*bitmap_)[word] & Mask(from, to)));
    }
    return count;
  }
  for (size_t i = FindRun(first); i < runs_.size() && runs_[i].first < end; ++i) {
    count +=
        std::min<uint32_t>(runs_[i].last + 1u, end) - std::max<uint32_t>(runs_[i].first, first);
  }
  return count;
}

void AckSet::Serialize(std::string* out) const {
  if (bitmap_) {
    out->push_back(kBitmapForm);
    out->append(reinterpret_cast<const char*>(bitmap_->data()), sizeof(Words));
    return;
  }
  out->push_back(kRunsForm);
  storage::PutVarint(*out, runs_.size());
  uint32_t at = 0;
  for (const Run& run : runs_) {
    storage::PutVarint(*out, run.first - at);
    storage::PutVarint(*out, run.last - run.first);
    at = run.last;
  }
}

bool AckSet::Parse(std::string_view bytes) {
  storage::ByteReader reader(bytes);
  size_ = 0;
  runs_.clear();
  bitmap_.reset();
  uint8_t form = reader.Byte();
  if (form == kBitmapForm) {
    std::string_view words = reader.Bytes(sizeof(Words));
    if (!reader.ok() || !reader.empty()) return false;
    bitmap_ = std::make_unique<Words>();
    std::memcpy(bitmap_->data(), words.data(), sizeof(Words));
    size_ = Count(0, kSize);
    return true;
  }
  if (form != kRunsForm) return false;
  uint64_t count = reader.Varint();
  if (count > kRunsMax) return false;
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t gap = reader.Varint(), length = reader.Varint();
    if (!reader.ok() || gap >= kSize || length >= kSize || (i > 0 && gap < 2)) return false;
    uint64_t first = at + gap;
    at = first + length;
    if (at >= kSize) return false;
    runs_.push_back({static_cast<uint16_t>(first), static_cast<uint16_t>(at)});
    size_ += static_cast<uint32_t>(length + 1);
  }
  return reader.ok() && reader.empty();
}

}  // namespace millrace::pubsub
