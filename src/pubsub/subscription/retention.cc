#include "pubsub/subscription/retention.h"

#include <algorithm>

#include "base/log.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kPieceBytes = 256 << 10;

}  // namespace

void Retention::ExpireBefore(WallTime limit) {
  if (searching_ || limit <= oldest_) return;
  limit_ = limit;
  Search();
}

void Retention::Search() {
  searching_ = false;
  const BlockSummaries& summaries = state_.summaries;
  uint64_t cursor = state_.blocks.cursor();
  uint64_t end = context_.topic().CommittedEnd();
  while (cursor < end) {
    uint64_t border = (cursor / AckBlocks::kBlock + 1) * AckBlocks::kBlock;
    const BlockSummary* summary = summaries.Find(cursor / AckBlocks::kBlock);
    if (summary == nullptr || summaries.counted_end() < border || summary->publish_max >= limit_)
      break;
    expired_({cursor, border - cursor, AckedRun::kUnknownBytes});
    cursor = state_.blocks.cursor();
  }
  if (cursor >= end) return;
  Read(cursor, std::min(end, (cursor / AckBlocks::kBlock + 1) * AckBlocks::kBlock));
}

void Retention::Read(uint64_t from, uint64_t end) {
  searching_ = true;
  std::vector<StoredMessage> messages;
  if (context_.topic().TryRead(from, end, kPieceBytes, &messages) && !messages.empty() &&
      messages.front().offset == from) {
    Look(from, end, messages);
    return;
  }
  context_.topic().Read(
      from, end, kPieceBytes, context_.executor(),
      context_.WhileAlive([this, from, end](StatusOr<std::vector<StoredMessage>> read) {
        if (read.ok()) return Look(from, end, *read);
        searching_ = false;  // housekeeping asks again
        MR_LOG(kError, "subscription {}: reading for retention at offset {} failed: {}",
               context_.environment.name, from, MessageOf(read.status()));
      }));
}

void Retention::Look(uint64_t from, uint64_t end, const std::vector<StoredMessage>& messages) {
  for (const StoredMessage& message : messages) {
    if (state_.blocks.IsAcked(message.offset)) continue;
    if (message.publish_time >= limit_) {
      // The oldest one that is left: nothing can expire before it does.
      oldest_ = message.publish_time;
      searching_ = false;
      return;
    }
    expired_({message.offset, 1, message.wire.size()});
  }
  // All of this piece has expired, or lives no more; on with the next one, in a turn of its own.
  uint64_t looked_to = messages.empty() ? end : messages.back().offset + 1;
  if (messages.empty()) expired_({from, end - from, AckedRun::kUnknownBytes});
  if (looked_to >= context_.topic().CommittedEnd()) {
    searching_ = false;
    return;
  }
  context_.executor().Post(context_.WhileAlive([this] { Search(); }));
}

}  // namespace millrace::pubsub
