// A segment: one file of fixed size that holds a stretch of the log. Byte `i` of the file is place
// `base + i` of the log.
//
//   0        header, in the first 4,096 bytes
//   4096     frames, one after another
//   …        once sealed: index pages, directory and trailer, ending at the file's end
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "storage/commit_log/index.h"
#include "storage/file.h"
#include "storage/types.h"

namespace millrace::storage {

inline constexpr uint64_t kSegmentHeaderBytes = 4096;
inline constexpr uint32_t kLogVersion = 1;

struct SegmentHeader {
  enum Kind : uint32_t { kLog = 1, kSpare = 2 } kind = kSpare;
  Lsn base = 0;
  uint64_t capacity = 0;
  Lsn previous_end =
      0;  // behind the last frame before this segment; it was synced before this segment was begun
};
std::string EncodeSegmentHeader(const SegmentHeader& header);  // kSegmentHeaderBytes long
// FailedPrecondition for a newer version, DataLoss for anything else that is no header.
StatusOr<SegmentHeader> ParseSegmentHeader(std::string_view bytes);

// A file prepared for use, not yet a part of the log.
struct SegmentFile {
  std::string path;
  std::shared_ptr<File> file;
  uint64_t capacity = 0;
  // While zeros are still being written ahead of the writer (first segment of a new log): who
  // writes to the file holds the mutex, and the zeros go behind `written_to` only.
  struct Filling {
    Mutex mutex;
    uint64_t written_to MR_GUARDED_BY(mutex) = 0;
    std::atomic<bool> done{false};
  };
  std::shared_ptr<Filling> filling;  // null: already written all over
};

// A part of the log. The file and what the constructor sets are fixed; fields below the line belong
// to SegmentTable and its lock. Readers hold a reference while they read, which keeps the file from
// being recycled under them.
struct Segment {
  Segment(SegmentFile file_in, Lsn base_in)
      : path(std::move(file_in.path)),
        file(std::move(file_in.file)),
        filling(std::move(file_in.filling)),
        base(base_in),
        capacity(file_in.capacity) {}

  const std::string path;
  const std::shared_ptr<File> file;
  const std::shared_ptr<SegmentFile::Filling> filling;
  const Lsn base;
  const uint64_t capacity;

  Lsn previous_end = 0;  // as in the header; set at recovery

  // --- SegmentTable's
  Lsn data_end = 0;                       // behind the last durable frame
  std::unique_ptr<GrowingIndex> growing;  // null once indexed
  std::vector<IndexPage> pages;           // once indexed: by partition and offset
  uint64_t body_bytes = 0;
  uint64_t live_bytes = 0;   // as far as known: all, until somebody has counted
  int examined = 0;          // times counted with about the same result
  uint64_t examined_at = 0;  // number of the count in the table's order; 0: never
};

using SegmentPtr = std::shared_ptr<Segment>;

}  // namespace millrace::storage
