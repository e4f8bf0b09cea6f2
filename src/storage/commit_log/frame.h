// A frame is one commit group on disk: header, manifest (records and the heads of entries), then
// the bodies of its entries.
//
//   header    48 bytes: magic, checksum, lsn, synced_before, manifest bytes, item count, body
//   bytes, boot, zero manifest  items, one after another (frame.cc) bodies    for each entry in
//   manifest order: checksum (4 bytes), body padding   zeros up to a multiple of 8
//
// The header's checksum covers the rest of the header and the manifest; each body has its own, so
// that a cold read checks what it returns without reading the whole frame. Both are seeded with the
// place in the log, and old bytes of a recycled segment never pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/types.h"

namespace millrace::storage {

inline constexpr uint32_t kFrameMagic = 0x3146524d;  // "MRF1"
inline constexpr size_t kFrameHeaderBytes = 48;
inline constexpr size_t kBodyPrefixBytes = 4;

struct FrameHeader {
  Lsn lsn = 0;  // of the frame's first byte
  // Everything below was synced when this frame was written: a bad frame below it is damage, not a
  // torn tail.
  Lsn synced_before = 0;
  uint32_t boot = 0;  // grows with every opening; never decreases along the log
  uint32_t manifest_bytes = 0;
  uint32_t items = 0;
  uint64_t body_bytes = 0;  // prefixes included

  uint64_t TotalBytes() const {
    return (kFrameHeaderBytes + manifest_bytes + body_bytes + 7) / 8 * 8;
  }
};

// Checksum of the body that begins (after its prefix) at `place`.
uint32_t BodyChecksum(Lsn place, std::string_view body);

// Collects a group and lays it out. Not thread-safe; owned by the writer, used again for every
// group. Bodies are not copied unless they are small; records must live until the pieces are
// written.
class FrameBuilder {
 public:
  struct PlacedEntry {
    const TopicEntry* entry;
    uint64_t body_position;  // from the frame's first byte
    bool relocated;
  };

  void Clear();
  void Add(const Record& record);
  // An entry that is already in the log elsewhere: no record comes with it and replay does not show
  // it.
  void AddRelocated(const TopicEntry& entry);
  bool empty() const { return items_ == 0; }
  uint64_t TotalBytes() const;

  // Seals the frame for its place. The pieces, written one after another, are the frame; valid
  // until Clear.
  const std::vector<std::string_view>& Finish(Lsn lsn, Lsn synced_before, uint32_t boot);
  // After Finish.
  const std::vector<PlacedEntry>& entries() const { return entries_; }

 private:
  void AddEntry(const TopicEntry& entry, bool relocated);

  std::string head_;    // header and manifest
  std::string copied_;  // body prefixes, small bodies, padding
  std::vector<std::string_view> pieces_;
  std::vector<PlacedEntry> entries_;
  uint64_t body_bytes_ = 0;
  uint32_t items_ = 0;
};

// One item of a parsed frame; views point into the frame's bytes.
struct FrameItem {
  bool is_record = false;
  ShardId shard;
  uint64_t seq = 0;
  std::string_view payload;
  std::optional<TopicEntry> entry;  // without body
  std::string_view body;
  uint64_t body_position = 0;  // from the frame's first byte
};

// The header at the front of `bytes`, if it claims to be the frame of this place. Its checksum is
// not looked at.
std::optional<FrameHeader> ParseFrameHeader(std::string_view bytes, Lsn place);
// Checks all checksums and takes the frame apart. False if anything is wrong. `frame` holds
// TotalBytes.
bool ParseFrame(std::string_view frame, const FrameHeader& header, std::vector<FrameItem>* items);

}  // namespace millrace::storage
