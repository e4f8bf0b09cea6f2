#include "storage/commit_log/segment.h"

#include <fmt/format.h>

#include "storage/commit_log/crc32c.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

constexpr uint32_t kMagic = 0x4753524d;  // "MRSG"
constexpr size_t kUsedBytes = 40;

}  // namespace

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string covered;
  PutFixed32(covered, kLogVersion);
  PutFixed32(covered, header.kind);
  PutFixed64(covered, header.base);
  PutFixed64(covered, header.capacity);
  PutFixed64(covered, header.previous_end);
  std::string out;
  PutFixed32(out, kMagic);
  PutFixed32(out, ExtendCrc32c(0, covered));
  out += covered;
  out.resize(kSegmentHeaderBytes, '\0');
  return out;
}

StatusOr<SegmentHeader> ParseSegmentHeader(std::string_view bytes) {
  if (bytes.size() < kUsedBytes || ReadFixed32(bytes.data()) != kMagic ||
      ReadFixed32(&bytes[4]) != ExtendCrc32c(0, bytes.substr(8, kUsedBytes - 8))) {
    return DataLoss("the segment's header is damaged");
  }
  uint32_t version = ReadFixed32(&bytes[8]);
  if (version > kLogVersion) {
    return FailedPrecondition(fmt::format(
        "written by a newer version (log format {}, this one knows {})", version, kLogVersion));
  }
  SegmentHeader header;
  header.kind = static_cast<SegmentHeader::Kind>(ReadFixed32(&bytes[12]));
  header.base = ReadFixed64(&bytes[16]);
  header.capacity = ReadFixed64(&bytes[24]);
  header.previous_end = ReadFixed64(&bytes[32]);
  if (header.kind != SegmentHeader::kLog && header.kind != SegmentHeader::kSpare) {
    return DataLoss("the segment's header is of an unknown kind");
  }
  return header;
}

}  // namespace millrace::storage
