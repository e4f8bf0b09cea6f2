#include "pubsub/subscription/block_summaries.h"

#include <algorithm>

#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr uint64_t kBlock = AckBlocks::kBlock;

}  // namespace

BlockSummary& BlockSummaries::At(uint64_t block) {
  if (block - base_ >= blocks_.size()) blocks_.resize(block - base_ + 1);
  if (dirty_.empty() || *dirty_.rbegin() != block) dirty_.insert(block);
  return blocks_[block - base_];
}

const BlockSummary* BlockSummaries::Find(uint64_t block) const {
  if (block < base_ || block - base_ >= blocks_.size()) return nullptr;
  return &blocks_[block - base_];
}

void BlockSummaries::Count(const StoredMessage& message, bool acked) {
  counted_end_ = message.offset + 1;
  uint64_t block = message.offset / kBlock;
  if (block < base_) return;
  BlockSummary& summary = At(block);
  summary.publish_min = std::min(summary.publish_min, message.publish_time);
  summary.publish_max = std::max(summary.publish_max, message.publish_time);
  if (acked) return;
  summary.bytes += message.wire.size();
  bytes_ += message.wire.size();
}

void BlockSummaries::SkipTo(uint64_t offset) { counted_end_ = std::max(counted_end_, offset); }

void BlockSummaries::OnAcked(const AckedRun& run) {
  if (run.first >= counted_end_) return;
  uint64_t last = std::min(run.first + run.count, counted_end_) - 1;
  uint64_t block = run.first / kBlock;
  bool whole = run.first + run.count <= counted_end_;
  if (block == recount_block_ && run.first < recount_end_ && last >= recount_position_) {
    if (run.first >= recount_position_ && last < recount_end_) return;  // will not be counted
    whole = false;
  }
  if (run.bytes != AckedRun::kUnknownBytes && whole && last / kBlock == block) {
    if (block < base_) return;
    BlockSummary& summary = At(block);
    uint64_t bytes = std::min(run.bytes, summary.bytes);
    summary.bytes -= bytes;
    bytes_ -= bytes;
    return;
  }
  for (; block <= last / kBlock; ++block) MarkStale(block);
}

void BlockSummaries::MarkStale(uint64_t block) {
  if (block < base_) return;
  At(block).stale = true;
  stale_.insert(block);
}

void BlockSummaries::OnCursor(uint64_t cursor) {
  uint64_t block = cursor / kBlock;
  while (base_ < block) {
    if (blocks_.empty()) {
      base_ = block;
      break;
    }
    bytes_ -= blocks_.front().bytes;
    blocks_.pop_front();
    ++base_;
  }
  counted_end_ = std::max(counted_end_, cursor);
  stale_.erase(stale_.begin(), stale_.lower_bound(base_));
}

uint64_t BlockSummaries::BeginRecount(uint64_t block) {
  recount_block_ = block;
  recount_end_ = std::min((block + 1) * kBlock, counted_end_);
  recount_position_ = block * kBlock;
  BlockSummary& summary = At(block);
  bytes_ -= summary.bytes;
  summary.bytes = 0;
  summary.stale = false;
  stale_.erase(block);
  return recount_end_;
}

void BlockSummaries::Recount(uint64_t offset, uint64_t size) {
  if (recount_block_ < base_) return;
  At(recount_block_).bytes += size;
  bytes_ += size;
  recount_position_ = offset + 1;
}

void BlockSummaries::EndRecount() { recount_block_ = kNone; }

std::set<uint64_t> BlockSummaries::TakeDirty() {
  std::set<uint64_t> dirty;
  dirty.swap(dirty_);
  dirty.erase(dirty.begin(), dirty.lower_bound(base_));
  return dirty;
}

void BlockSummaries::AppendTo(uint64_t block, std::string* out) const {
  BlockSummary none;
  const BlockSummary* found = Find(block);
  const BlockSummary& summary = found == nullptr ? none : *found;
  // A block that is being counted anew has a wrong sum until it is done.
  out->push_back(summary.stale || block == recount_block_);
  storage::PutVarint(*out, summary.bytes);
  storage::PutFixed64(*out, static_cast<uint64_t>(summary.publish_min.micros));
  storage::PutFixed64(*out, static_cast<uint64_t>(summary.publish_max.micros));
}

bool BlockSummaries::RestoreBlock(uint64_t block, std::string_view bytes) {
  if (block < base_ || block - base_ > (uint64_t{1} << 24)) return false;
  storage::ByteReader reader(bytes);
  BlockSummary& summary = At(block);
  bool stale = reader.Byte() != 0;
  summary.bytes = reader.Varint();
  summary.publish_min.micros = static_cast<int64_t>(reader.Fixed64());
  summary.publish_max.micros = static_cast<int64_t>(reader.Fixed64());
  if (!reader.ok() || !reader.empty()) return false;
  bytes_ += summary.bytes;
  if (stale) MarkStale(block);
  dirty_.erase(block);
  return true;
}

void BlockSummaries::RestoreEnd(uint64_t counted_end, uint64_t cursor) {
  base_ = cursor / kBlock;
  blocks_.clear();
  counted_end_ = std::max(counted_end, cursor);
}

}  // namespace millrace::pubsub
