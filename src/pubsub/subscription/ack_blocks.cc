#include "pubsub/subscription/ack_blocks.h"

#include <algorithm>

namespace millrace::pubsub {

AckBlocks::AckBlocks(uint64_t start) : cursor_(start), acked_end_(start), base_(start / kBlock) {}

const AckSet* AckBlocks::Find(uint64_t block) const {
  if (block < base_ || block - base_ >= blocks_.size()) return nullptr;
  return blocks_[block - base_].get();
}

AckSet& AckBlocks::Writable(uint64_t block) {
  if (block - base_ >= blocks_.size()) blocks_.resize(block - base_ + 1);
  std::shared_ptr<AckSet>& set = blocks_[block - base_];
  if (!set) {
    set = std::make_shared<AckSet>();
  } else if (set.use_count() > 1) {
    set = std::make_shared<AckSet>(*set);
  }
  if (dirty_.empty() || *dirty_.rbegin() != block) dirty_.insert(block);
  return *set;
}

bool AckBlocks::IsAcked(uint64_t offset) const {
  if (offset < cursor_) return true;
  if (offset >= acked_end_) return false;
  const AckSet* set = Find(offset / kBlock);
  return set != nullptr && set->Contains(offset % kBlock);
}

uint64_t AckBlocks::NextUnacked(uint64_t from) const {
  from = std::max(from, cursor_);
  while (from < acked_end_) {
    const AckSet* set = Find(from / kBlock);
    if (set == nullptr) return from;
    uint32_t out = set->NextOut(from % kBlock);
    from = from / kBlock * kBlock + out;
    if (out < kBlock) return from;
  }
  return from;
}

uint64_t AckBlocks::NextAcked(uint64_t from, uint64_t end) const {
  if (from < cursor_) return from;
  while (from < std::min(end, acked_end_)) {
    uint32_t in = kBlock;
    if (const AckSet* set = Find(from / kBlock)) in = set->NextIn(from % kBlock);
    from = from / kBlock * kBlock + in;
    if (in < kBlock) return std::min(from, end);
  }
  return end;
}

uint64_t AckBlocks::CountUnacked(uint64_t first, uint64_t end) const {
  first = std::max(first, cursor_);
  if (first >= end) return 0;
  uint64_t count = end - first;
  for (uint64_t at = first; at < std::min(end, acked_end_);) {
    uint64_t border = std::min(end, (at / kBlock + 1) * kBlock);
    if (const AckSet* set = Find(at / kBlock)) {
      count -= set->Count(at % kBlock, static_cast<uint32_t>(border - at / kBlock * kBlock));
    }
    at = border;
  }
  return count;
}

void AckBlocks::Ack(uint64_t first, uint64_t count,
                    FunctionRef<void(uint64_t first, uint64_t count)> newly) {
  uint64_t end = first + count;
  first = std::max(first, cursor_);
  if (first >= end) return;
  if (first == cursor_ && end >= acked_end_) {
    // The backlog's whole front: no set is needed to say so, except for what lies in the cursor's
    // new block.
    for (uint64_t at = NextUnacked(first); at < end;) {
      uint64_t next = NextAcked(at, end);
      newly(at, next - at);
      at = NextUnacked(next);
    }
    acked_end_ = std::max(acked_end_, end);
    cursor_ = end;
    AdvanceCursor();
    return;
  }
  uint64_t old_end = acked_end_;
  for (uint64_t at = first; at < end;) {
    uint64_t block = at / kBlock;
    uint64_t border = std::min(end, (block + 1) * kBlock);
    AckSet& set = Writable(block);
    uint32_t from = at % kBlock, to = static_cast<uint32_t>(border - block * kBlock);
    if (at >= old_end) {
      newly(at, border - at);
    } else {
      for (uint32_t out = set.NextOut(from); out < to; out = set.NextOut(out)) {
        uint32_t in = std::min(set.NextIn(out), to);
        newly(block * kBlock + out, in - out);
        out = in;
        if (out >= to) break;
      }
    }
    set.Add(from, to);
    acked_end_ = std::max(acked_end_, border);
    at = border;
  }
  if (first == cursor_) {
    cursor_ = NextUnacked(cursor_);
    AdvanceCursor();
  }
}

// Drops blocks that lie wholly below the cursor. Bits below the cursor inside its own block mean
// nothing.
void AckBlocks::AdvanceCursor() {
  acked_end_ = std::max(acked_end_, cursor_);
  while (base_ < cursor_ / kBlock) {
    if (!blocks_.empty()) blocks_.pop_front();
    ++base_;
    if (blocks_.empty()) base_ = cursor_ / kBlock;
  }
}

std::shared_ptr<const AckSet> AckBlocks::Share(uint64_t block) const {
  if (block < base_ || block - base_ >= blocks_.size()) return nullptr;
  return blocks_[block - base_];
}

std::set<uint64_t> AckBlocks::TakeDirty() {
  std::set<uint64_t> dirty;
  dirty.swap(dirty_);
  dirty.erase(dirty.begin(), dirty.lower_bound(base_));
  return dirty;
}

std::string AckBlocks::SerializeBlock(uint64_t block) const {
  std::string bytes;
  if (const AckSet* set = Find(block)) set->Serialize(&bytes);
  return bytes;
}

void AckBlocks::RestoreCursor(uint64_t cursor) {
  cursor_ = acked_end_ = cursor;
  base_ = cursor / kBlock;
  blocks_.clear();
}

bool AckBlocks::RestoreBlock(uint64_t block, std::string_view bytes) {
  if (block < base_ || block - base_ > (uint64_t{1} << 24)) return false;
  auto set = std::make_shared<AckSet>();
  if (!bytes.empty() && !set->Parse(bytes)) return false;
  if (set->size() == 0) return true;
  // The highest member: the last run or word that is not empty.
  uint32_t end = 0;
  for (uint32_t at = set->NextIn(0); at < kBlock; at = set->NextIn(end)) end = set->NextOut(at);
  acked_end_ = std::max(acked_end_, block * kBlock + end);
  if (block - base_ >= blocks_.size()) blocks_.resize(block - base_ + 1);
  blocks_[block - base_] = std::move(set);
  return true;
}

}  // namespace millrace::pubsub
