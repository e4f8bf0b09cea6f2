#include "storage/commit_log/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

constexpr uint64_t kChunk = 1 << 20;
constexpr size_t kTailBytes = 128 << 10;  // usually holds trailer and directory

struct OnDisk {
  SegmentFile file;
  SegmentHeader header;
};

Status Damaged(const std::string& path, uint64_t offset, std::string_view what) {
  return DataLoss(fmt::format(
      "{} is damaged at byte {}: {}; restore the data directory from a backup, or move it away to "
      "start empty",
      path, offset, what));
}

// Whether a good frame further on says that this place had been synced. Also finds the highest boot
// number in what follows, since those frames must never be taken for new ones.
StatusOr<bool> LaterFrameVouches(File& file, Lsn base, uint64_t bad, uint64_t capacity,
                                 uint32_t* boot) {
  std::string chunk;
  for (uint64_t begin = bad / 8 * 8; begin + kFrameHeaderBytes <= capacity; begin += kChunk) {
    // Headers may straddle chunks.
    chunk.resize(std::min<uint64_t>(kChunk + kFrameHeaderBytes, capacity - begin));
    MR_ASSIGN_OR_RETURN(size_t got, file.ReadAt(begin, chunk.data(), chunk.size()));
    chunk.resize(got);
    for (uint64_t at = 0; at + kFrameHeaderBytes <= got && at < kChunk; at += 8) {
      uint64_t offset = begin + at;
      if (offset <= bad || ReadFixed32(&chunk[at]) != kFrameMagic) continue;
      auto header = ParseFrameHeader(std::string_view(chunk).substr(at), base + offset);
      if (!header || offset + header->TotalBytes() > capacity) continue;
      std::string frame(header->TotalBytes(), '\0');
      MR_ASSIGN_OR_RETURN(size_t read, file.ReadAt(offset, frame.data(), frame.size()));
      std::vector<FrameItem> items;
      if (read < frame.size() || !ParseFrame(frame, *header, &items)) continue;
      *boot = std::max(*boot, header->boot);
      if (header->synced_before > base + bad) return true;
    }
  }
  return false;
}

// From the end of the file. NotFound if the segment was not sealed.
Status LoadIndex(Segment& segment) {
  uint64_t tail = std::min<uint64_t>(kTailBytes, segment.capacity);
  std::string bytes(tail, '\0');
  MR_ASSIGN_OR_RETURN(size_t got,
                      segment.file->ReadAt(segment.capacity - tail, bytes.data(), tail));
  if (got < tail) return NotFound("no index");
  std::string_view view(bytes);
  MR_ASSIGN_OR_RETURN(IndexTrailer trailer,
                      ParseIndexTrailer(view.substr(tail - IndexTrailer::kBytes), segment.base));
  std::string directory(trailer.directory_bytes, '\0');
  uint64_t tail_begin = segment.capacity - tail;
  if (trailer.directory_position >= tail_begin) {
    directory = view.substr(trailer.directory_position - tail_begin, trailer.directory_bytes);
  } else {
    MR_ASSIGN_OR_RETURN(size_t read, segment.file->ReadAt(trailer.directory_position,
                                                          directory.data(), directory.size()));
    directory.resize(read);
  }
  auto pages = ParseIndexDirectory(directory, trailer);
  // A directory torn in writing: the frames are still there to make it again.
  if (!pages.ok()) return NotFound("the index is not whole");
  segment.pages = *std::move(pages);
  segment.data_end = trailer.data_end;
  return OkStatus();
}

void Index(const FrameScanner& scanner, GrowingIndex& index) {
  for (const FrameItem& item : scanner.items()) {
    if (!item.entry) continue;
    const TopicEntry& entry = *item.entry;
    index.Add(entry.partition, {entry.first_offset, entry.publish_time.micros, entry.count,
                                static_cast<uint32_t>(scanner.frame_offset() + item.body_position),
                                static_cast<uint32_t>(item.body.size())});
  }
}

// By its frames. `expected_end` is known if a later segment exists.
Status ScanSegment(Segment& segment, std::optional<Lsn> expected_end, uint32_t* boot) {
  segment.growing = std::make_unique<GrowingIndex>();
  FrameScanner scanner(*segment.file, segment.base, kSegmentHeaderBytes, segment.capacity);
  while (true) {
    if (expected_end && segment.base + scanner.offset() >= *expected_end) break;
    MR_ASSIGN_OR_RETURN(bool found, scanner.Next());
    if (!found) break;
    *boot = std::max(*boot, scanner.header().boot);
    Index(scanner, *segment.growing);
  }
  segment.data_end = segment.base + scanner.offset();
  if (expected_end) {
    if (segment.data_end == *expected_end) return OkStatus();
    return Damaged(segment.path, scanner.offset(), "a frame that had been synced is not readable");
  }
  MR_ASSIGN_OR_RETURN(bool vouched, LaterFrameVouches(*segment.file, segment.base, scanner.offset(),
                                                      segment.capacity, boot));
  if (vouched) {
    return Damaged(segment.path, scanner.offset(),
                   "a frame is not readable although a later one is");
  }
  return OkStatus();
}

// All named files with their headers; leavings of unfinished ones are removed.
StatusOr<std::vector<OnDisk>> ListSegments(Files& files, const std::string& directory,
                                           RecoveredLog& out) {
  std::vector<OnDisk> found;
  MR_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) {
    std::string path = directory + "/" + name;
    if (name.ends_with(".seg.tmp")) {
      MR_RETURN_IF_ERROR(files.Remove(path));
    }
    if (!name.ends_with(".seg")) continue;
    out.next_number =
        std::max<uint64_t>(out.next_number, std::strtoull(name.c_str(), nullptr, 10) + 1);
    OnDisk segment;
    segment.file.path = path;
    MR_ASSIGN_OR_RETURN(segment.file.file, files.Open(path, /*create=*/false));
    std::string bytes(kSegmentHeaderBytes, '\0');
    MR_ASSIGN_OR_RETURN(size_t got, segment.file.file->ReadAt(0, bytes.data(), bytes.size()));
    auto header = ParseSegmentHeader(std::string_view(bytes).substr(0, got));
    if (header.status().code() == StatusCode::kDataLoss) {
      return Damaged(path, 0, MessageOf(header.status()));
    }
    if (!header.ok()) {
      return MakeStatus(header.status().code(),
                        fmt::format("{}: {}", path, MessageOf(header.status())));
    }
    segment.header = *header;
    segment.file.capacity = header->capacity;
    if (header->kind == SegmentHeader::kSpare) {
      out.spares.push_back(std::move(segment.file));
    } else {
      found.push_back(std::move(segment));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const OnDisk& a, const OnDisk& b) { return a.header.base < b.header.base; });
  return found;
}

}  // namespace

StatusOr<std::string_view> FrameScanner::Load(uint64_t offset, uint64_t size) {
  if (offset < buffer_begin_ || offset + size > buffer_begin_ + buffer_size_) {
    uint64_t want = std::min(std::max(size, kChunk), limit_ - offset);
    buffer_ = std::make_shared_for_overwrite<char[]>(want);
    MR_ASSIGN_OR_RETURN(buffer_size_, file_.ReadAt(offset, buffer_.get(), want));
    buffer_begin_ = offset;
  }
  uint64_t begin = offset - buffer_begin_;
  return std::string_view(buffer_.get() + begin, std::min(size, buffer_size_ - begin));
}

StatusOr<bool> FrameScanner::Next() {
  if (offset_ + kFrameHeaderBytes > limit_) return false;
  MR_ASSIGN_OR_RETURN(std::string_view head, Load(offset_, kFrameHeaderBytes));
  auto header = ParseFrameHeader(head, base_ + offset_);
  // A lower boot number: left over behind the cut of an earlier recovery.
  if (!header || header->boot < boot_ || header->TotalBytes() > limit_ - offset_) return false;
  MR_ASSIGN_OR_RETURN(std::string_view frame, Load(offset_, header->TotalBytes()));
  if (!ParseFrame(frame, *header, &items_)) return false;
  header_ = *header;
  boot_ = header->boot;
  frame_offset_ = offset_;
  offset_ += header->TotalBytes();
  return true;
}

StatusOr<RecoveredLog> RecoverLog(Files& files, const std::string& directory) {
  RecoveredLog out;
  MR_ASSIGN_OR_RETURN(std::vector<OnDisk> found, ListSegments(files, directory, out));
  uint32_t boot = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    auto segment = std::make_shared<Segment>(std::move(found[i].file), found[i].header.base);
    segment->previous_end = found[i].header.previous_end;
    bool last = i + 1 == found.size();
    // A later segment says where this one ended, if it is the next one: those between may have been
    // recycled.
    std::optional<Lsn> expected_end;
    if (!last) {
      Lsn end = found[i + 1].header.previous_end;
      if (end > segment->base && end <= segment->base + segment->capacity) expected_end = end;
    }
    Status indexed = LoadIndex(*segment);
    if (indexed.code() == StatusCode::kNotFound) {
      MR_RETURN_IF_ERROR(ScanSegment(*segment, expected_end, &boot));
      if (!last) out.unsealed.push_back(segment);
      if (last) out.current = segment;
    } else if (!indexed.ok()) {
      return indexed;
    }
    out.end = segment->data_end;
    out.next_base = segment->base + segment->capacity;
    out.segments.push_back(std::move(segment));
  }
  // Sealed segments carry boots too, but nothing follows them in their file; only the growing one
  // can show old frames.
  out.boot = boot + 1;
  if (!out.segments.empty()) {
    // What a killed process wrote but did not sync is about to be taken for durable.
    MR_RETURN_IF_ERROR(out.segments.back()->file->Sync());
  }
  return out;
}

}  // namespace millrace::storage
