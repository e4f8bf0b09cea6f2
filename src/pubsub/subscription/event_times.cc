#include "pubsub/subscription/event_times.h"

#include <algorithm>

#include "pubsub/subscription/timestamp_attribute.h"

namespace millrace::pubsub {
namespace {

constexpr int64_t kBucketsPerBand = 256;
constexpr int64_t kBucketMicrosMin = 1000;

}  // namespace

EventTimes::EventTimes(std::string attribute, Duration band, uint64_t from)
    : attribute_(std::move(attribute)),
      band_(band),
      cursor_(from),
      looking_back_(from > 0),
      base_(from / kChunk) {}

int64_t EventTimes::BucketMicros() const {
  return std::max(kBucketMicrosMin, band_.count() / kBucketsPerBand);
}

void EventTimes::WidenBand(Duration band) {
  if (band <= band_) return;
  int64_t old_micros = BucketMicros();
  band_ = band;
  std::deque<Bucket> old;
  old.swap(buckets_);
  for (const Bucket& bucket : old) {
    // The end of the old bucket decides: a minimum may be kept too long, never too short.
    AddToBand({(bucket.index + 1) * old_micros - 1}, bucket.minimum);
  }
}

void EventTimes::LookBack(const StoredMessage* probed, WallTime now) {
  cursor_ = probe();
  back_step_ *= 2;
  // Dead messages are past everyone's retention or long acked by all: nothing of the band is
  // further back.
  looking_back_ = cursor_ > 0 && probed != nullptr && probed->publish_time >= now - band_;
}

EventTimes::Chunk& EventTimes::At(uint64_t chunk) {
  if (chunk - base_ >= chunks_.size()) chunks_.resize(chunk - base_ + 1);
  return chunks_[chunk - base_];
}

void EventTimes::Add(const StoredMessage& message, bool acked) {
  cursor_ = message.offset + 1;
  int64_t ms = EventTimeMs(message.wire.view(), attribute_, message.publish_time);
  AddToBand(message.publish_time, ms);
  if (acked) return;
  if (chunks_.empty()) base_ = message.offset / kChunk;
  Chunk& chunk = At(message.offset / kChunk);
  ++chunk.unacked;
  // A value below the bound is the minimum, whatever the bound was for.
  if (ms < chunk.minimum) {
    chunk.minimum = ms;
    chunk.witness = message.offset % kChunk;
    chunk.bound_only = false;
  }
}

void EventTimes::AddToBand(WallTime publish_time, int64_t ms) {
  int64_t micros = BucketMicros();
  int64_t index = publish_time.micros / micros;
  if (!buckets_.empty() && buckets_.back().index >= index) {
    buckets_.back().minimum = std::min(buckets_.back().minimum, ms);
    return;
  }
  buckets_.push_back({index, ms});
  while (buckets_.front().index < index - band_.count() / micros - 2) buckets_.pop_front();
}

void EventTimes::SkipTo(uint64_t offset) { cursor_ = std::max(cursor_, offset); }

void EventTimes::OnAcked(uint64_t first, uint64_t count) {
  uint64_t end = std::min(first + count, cursor_);
  first = std::max(first, base_ * kChunk);
  while (first < end) {
    uint64_t index = first / kChunk;
    if (index - base_ >= chunks_.size()) break;
    uint64_t border = std::min(end, (index + 1) * kChunk);
    Chunk& chunk = chunks_[index - base_];
    uint64_t gone = std::min<uint64_t>(border - first, chunk.unacked);
    chunk.unacked -= static_cast<uint16_t>(gone);
    auto holds = [&](uint16_t witness) {
      uint64_t offset = index * kChunk + witness;
      return offset >= first && offset < border;
    };
    if (chunk.unacked == 0) {
      chunk = Chunk();
    } else if (holds(chunk.witness)) {
      chunk.bound_only = true;
    }
    if (refinement_.chunk == index && refinement_.minimum != kNone && holds(refinement_.witness)) {
      refinement_.chunk = UINT64_MAX;  // begin again
    }
    first = border;
  }
  while (!chunks_.empty() && chunks_.front().unacked == 0) {
    chunks_.pop_front();
    ++base_;
  }
}

std::optional<int64_t> EventTimes::MinimumUnacked() const {
  int64_t minimum = kNone;
  for (const Chunk& chunk : chunks_) minimum = std::min(minimum, chunk.minimum);
  if (minimum == kNone) return std::nullopt;
  return minimum;
}

std::optional<EventTimes::Part> EventTimes::NeedsReading() {
  int64_t exact = kNone, bound = kNone;
  uint64_t chunk = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (!chunks_[i].bound_only) {
      exact = std::min(exact, chunks_[i].minimum);
    } else if (chunks_[i].minimum < bound) {
      bound = chunks_[i].minimum;
      chunk = base_ + i;
    }
  }
  if (bound >= exact) return std::nullopt;
  if (refinement_.chunk != chunk) refinement_ = {chunk, chunk * kChunk, kNone, 0};
  return Part{refinement_.position, std::min((chunk + 1) * kChunk, cursor_)};
}

void EventTimes::Refine(Part part, uint64_t read_to, const std::vector<StoredMessage>& messages,
                        const AckBlocks& acks) {
  Refinement& r = refinement_;
  if (r.chunk != part.first / kChunk || r.position != part.first) return;  // overtaken by an ack
  for (const StoredMessage& message : messages) {
    if (message.offset < part.first || message.offset >= read_to) continue;
    if (acks.IsAcked(message.offset)) continue;
    int64_t ms = EventTimeMs(message.wire.view(), attribute_, message.publish_time);
    if (ms < r.minimum) {
      r.minimum = ms;
      r.witness = message.offset % kChunk;
    }
  }
  r.position = read_to;
  if (r.position < std::min((r.chunk + 1) * kChunk, cursor_)) return;
  if (r.chunk >= base_ && r.chunk - base_ < chunks_.size()) {
    Chunk& chunk = chunks_[r.chunk - base_];
    if (chunk.unacked > 0 && chunk.bound_only) {
      chunk.minimum = r.minimum;
      chunk.witness = r.witness;
      chunk.bound_only = false;
    }
  }
  refinement_ = {};
}

std::optional<int64_t> EventTimes::MinimumPublishedSince(WallTime since) const {
  int64_t index = since.micros / BucketMicros();
  int64_t minimum = kNone;
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend() && bucket->index >= index;
       ++bucket) {
    minimum = std::min(minimum, bucket->minimum);
  }
  if (minimum == kNone) return std::nullopt;
  return minimum;
}

}  // namespace millrace::pubsub
