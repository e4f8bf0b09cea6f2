// Event times of one subscription's messages by one timestamp attribute: the exact minimum of what
// is unacked, and the minimum of what was published lately. A source's watermark stands on both
// (DESIGN 4, 6).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pubsub/subscription/ack_blocks.h"
#include "pubsub/types.h"

namespace millrace::pubsub {

// Per 1,024 offsets it keeps the minimum of the unacked messages and one message that has it, the
// witness. While the witness is unacked the minimum is exact; once it is acked the old minimum is a
// lower bound, and the chunk is read again only when that bound would be the lowest of all. So an
// ack costs a comparison, a message 16 bytes per 1,024. Belongs to one subscription shard and its
// executor; volatile. Reads nothing itself (survey.h does).
class EventTimes {
 public:
  static constexpr uint64_t kChunk = 1024;

  // Everything below `from` is acked. Before anything is added, LookBack must have found where to
  // begin.
  EventTimes(std::string attribute, Duration band, uint64_t from);

  const std::string& attribute() const { return attribute_; }
  // Grows only.
  void WidenBand(Duration band);

  // Messages of the band may lie below the first unacked one: the probe is the next message to look
  // at. Finds the beginning in doubling steps, with little read.
  bool looking_back() const { return looking_back_; }
  uint64_t probe() const { return cursor_ > back_step_ ? cursor_ - back_step_ : 0; }
  // The message at probe(), or null if it does not live.
  void LookBack(const StoredMessage* probed, WallTime now);

  // Messages below were added.
  uint64_t cursor() const { return cursor_; }
  // The next living message at or after cursor().
  void Add(const StoredMessage& message, bool acked);
  // Nothing that lives below `offset` is missing.
  void SkipTo(uint64_t offset);
  // Acked just now, not acked before; may reach past cursor().
  void OnAcked(uint64_t first, uint64_t count);

  // Of all unacked messages below cursor(); nullopt: there are none. Exact unless NeedsReading().
  std::optional<int64_t> MinimumUnacked() const;
  // A part of a chunk whose messages must be given to Refine before the minimum is exact.
  struct Part {
    uint64_t first = 0, end = 0;
  };
  std::optional<Part> NeedsReading();
  // The living messages of [part.first, read_to), read since NeedsReading gave that part.
  void Refine(Part part, uint64_t read_to, const std::vector<StoredMessage>& messages,
              const AckBlocks& acks);

  // Of all messages added whose publish time is not before `since` (coarsened, so that some older
  // ones may count).
  std::optional<int64_t> MinimumPublishedSince(WallTime since) const;

 private:
  static constexpr int64_t kNone = INT64_MAX;
  struct Chunk {
    int64_t minimum = kNone;
    uint16_t witness = 0;  // position of a message that has it
    uint16_t unacked = 0;
    bool bound_only = false;  // the witness was acked
  };
  struct Bucket {
    int64_t index;  // publish time / bucket size
    int64_t minimum;
  };
  struct Refinement {
    uint64_t chunk = UINT64_MAX;
    uint64_t position = 0;  // messages below were seen
    int64_t minimum = kNone;
    uint16_t witness = 0;
  };
  Chunk& At(uint64_t chunk);
  int64_t BucketMicros() const;
  void AddToBand(WallTime publish_time, int64_t ms);

  std::string attribute_;
  Duration band_;
  uint64_t cursor_;
  bool looking_back_;
  uint64_t back_step_ = kChunk;
  uint64_t base_;  // of chunks_[0]
  std::deque<Chunk> chunks_;
  std::deque<Bucket> buckets_;  // by publish time
  Refinement refinement_;
};

}  // namespace millrace::pubsub
