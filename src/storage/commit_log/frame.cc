#include "storage/commit_log/frame.h"

#include <cstring>

#include "base/fault_points.h"
#include "storage/commit_log/crc32c.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

// Smaller bodies cost less to copy than to list in a scatter write.
constexpr size_t kCopyBelow = 4096;

// Item kinds on disk.
constexpr uint8_t kRecord = 1;
constexpr uint8_t kRecordWithEntry = 2;
constexpr uint8_t kRelocatedEntry = 3;

uint32_t PlaceSeed(Lsn place) {
  if (FaultPoint("storage.crc_ignores_sequence")) place = 0;
  char bytes[8];
  std::memcpy(bytes, &place, 8);
  return ExtendCrc32c(0, {bytes, 8});
}

// Of everything in the header after the checksum, and the manifest.
uint32_t HeadChecksum(Lsn lsn, std::string_view head) {
  std::string_view covered = head.substr(8);
  if (FaultPoint("storage.crc_ignores_sequence")) covered.remove_prefix(8);  // the lsn
  return ExtendCrc32c(PlaceSeed(lsn), covered);
}

void PutAt(std::string& out, size_t at, uint32_t value) { std::memcpy(&out[at], &value, 4); }
void PutAt(std::string& out, size_t at, uint64_t value) { std::memcpy(&out[at], &value, 8); }

}  // namespace

uint32_t BodyChecksum(Lsn place, std::string_view body) {
  return ExtendCrc32c(PlaceSeed(place), body);
}

void FrameBuilder::Clear() {
  head_.assign(kFrameHeaderBytes, '\0');
  copied_.clear();
  pieces_.clear();
  entries_.clear();
  body_bytes_ = 0;
  items_ = 0;
}

void FrameBuilder::Add(const Record& record) {
  head_.push_back(static_cast<char>(record.entry ? kRecordWithEntry : kRecord));
  head_.push_back(static_cast<char>(record.shard.kind));
  PutVarint(head_, record.shard.uid);
  PutVarint(head_, record.seq);
  PutString(head_, record.payload.view());
  if (record.entry) AddEntry(*record.entry, /*relocated=*/false);
  ++items_;
}

void FrameBuilder::AddRelocated(const TopicEntry& entry) {
  head_.push_back(static_cast<char>(kRelocatedEntry));
  AddEntry(entry, /*relocated=*/true);
  ++items_;
}

void FrameBuilder::AddEntry(const TopicEntry& entry, bool relocated) {
  PutVarint(head_, entry.partition.topic_uid);
  PutVarint(head_, entry.partition.partition);
  PutVarint(head_, entry.first_offset);
  PutVarint(head_, entry.count);
  PutVarint(head_, ZigZag(entry.publish_time.micros));
  PutVarint(head_, entry.body.size());
  entries_.push_back({&entry, body_bytes_ + kBodyPrefixBytes, relocated});
  body_bytes_ += kBodyPrefixBytes + entry.body.size();
}

uint64_t FrameBuilder::TotalBytes() const { return (head_.size() + body_bytes_ + 7) / 8 * 8; }

const std::vector<std::string_view>& FrameBuilder::Finish(Lsn lsn, Lsn synced_before,
                                                          uint32_t boot) {
  size_t copied_bytes = 8;
  for (PlacedEntry& placed : entries_) {
    placed.body_position += head_.size();
    size_t size = placed.entry->body.size();
    copied_bytes += kBodyPrefixBytes + (size < kCopyBelow ? size : 0);
  }
  copied_.reserve(copied_bytes);  // so that views into it stay
  pieces_.push_back({});          // the head, once it has its checksum
  size_t piece_begin = 0;
  auto close_piece = [&] {
    if (copied_.size() == piece_begin) return;
    pieces_.emplace_back(copied_.data() + piece_begin, copied_.size() - piece_begin);
    piece_begin = copied_.size();
  };
  for (const PlacedEntry& placed : entries_) {
    std::string_view body = placed.entry->body.view();
    PutFixed32(copied_, BodyChecksum(lsn + placed.body_position, body));
    if (body.size() < kCopyBelow) {
      copied_.append(body);
    } else {
      close_piece();
      pieces_.push_back(body);
    }
  }
  copied_.append(TotalBytes() - head_.size() - body_bytes_, '\0');
  close_piece();
  PutAt(head_, 0, kFrameMagic);
  PutAt(head_, 8, lsn);
  PutAt(head_, 16, synced_before);
  PutAt(head_, 24, static_cast<uint32_t>(head_.size() - kFrameHeaderBytes));
  PutAt(head_, 28, items_);
  PutAt(head_, 32, body_bytes_);
  PutAt(head_, 40, boot);
  PutAt(head_, 44, uint32_t{0});
  PutAt(head_, 4, HeadChecksum(lsn, head_));
  pieces_[0] = head_;
  return pieces_;
}

std::optional<FrameHeader> ParseFrameHeader(std::string_view bytes, Lsn place) {
  if (bytes.size() < kFrameHeaderBytes || ReadFixed32(bytes.data()) != kFrameMagic)
    return std::nullopt;
  FrameHeader header;
  header.lsn = ReadFixed64(&bytes[8]);
  if (header.lsn != place) {
    if (!FaultPoint("storage.crc_ignores_sequence")) return std::nullopt;
    header.lsn = place;
  }
  header.synced_before = ReadFixed64(&bytes[16]);
  header.manifest_bytes = ReadFixed32(&bytes[24]);
  header.items = ReadFixed32(&bytes[28]);
  header.body_bytes = ReadFixed64(&bytes[32]);
  header.boot = ReadFixed32(&bytes[40]);
  if (header.body_bytes > UINT32_MAX) return std::nullopt;  // segments are smaller
  return header;
}

namespace {

std::optional<TopicEntry> ReadEntryHead(ByteReader& reader, uint64_t* body_bytes) {
  TopicEntry entry;
  entry.partition.topic_uid = reader.Varint();
  entry.partition.partition = static_cast<uint32_t>(reader.Varint());
  entry.first_offset = reader.Varint();
  entry.count = static_cast<uint32_t>(reader.Varint());
  entry.publish_time.micros = UnZigZag(reader.Varint());
  *body_bytes = reader.Varint();
  if (!reader.ok()) return std::nullopt;
  return entry;
}

bool ReadItem(ByteReader& reader, std::string_view frame, Lsn lsn, uint64_t* position,
              FrameItem* item) {
  uint8_t kind = reader.Byte();
  item->is_record = kind == kRecord || kind == kRecordWithEntry;
  if (item->is_record) {
    item->shard.kind = static_cast<ShardKind>(reader.Byte());
    item->shard.uid = reader.Varint();
    item->seq = reader.Varint();
    item->payload = reader.String();
  }
  if (kind == kRecord) return reader.ok();
  if (kind != kRecordWithEntry && kind != kRelocatedEntry) return false;
  uint64_t body_bytes = 0;
  item->entry = ReadEntryHead(reader, &body_bytes);
  if (!item->entry || body_bytes > frame.size() ||
      *position + kBodyPrefixBytes + body_bytes > frame.size()) {
    return false;
  }
  item->body_position = *position + kBodyPrefixBytes;
  item->body = frame.substr(item->body_position, body_bytes);
  *position = item->body_position + body_bytes;
  return BodyChecksum(lsn + item->body_position, item->body) ==
         ReadFixed32(&frame[item->body_position - kBodyPrefixBytes]);
}

}  // namespace

bool ParseFrame(std::string_view frame, const FrameHeader& header, std::vector<FrameItem>* items) {
  items->clear();
  if (frame.size() < header.TotalBytes()) return false;
  std::string_view head = frame.substr(0, kFrameHeaderBytes + header.manifest_bytes);
  if (HeadChecksum(header.lsn, head) != ReadFixed32(&frame[4])) return false;
  ByteReader reader(head.substr(kFrameHeaderBytes));
  uint64_t position = head.size();
  if (header.items > head.size()) return false;
  items->reserve(header.items);
  for (uint32_t i = 0; i < header.items; ++i) {
    if (!ReadItem(reader, frame, header.lsn, &position, &items->emplace_back())) return false;
  }
  return reader.ok() && reader.empty() && position == head.size() + header.body_bytes;
}

}  // namespace millrace::storage
