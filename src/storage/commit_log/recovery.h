// Reads a log directory back: which segments there are, what they hold, where the log ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "storage/commit_log/frame.h"
#include "storage/commit_log/segment.h"
#include "storage/file.h"

namespace millrace::storage {

struct RecoveredLog {
  std::vector<SegmentPtr>
      segments;        // in log order; sealed ones with pages, others with a growing index
  SegmentPtr current;  // the last one, if it may grow on
  std::vector<SegmentPtr> unsealed;  // full ones without an index on disk
  std::vector<SegmentFile> spares;
  Lsn end = 0;               // behind the last good frame
  Lsn next_base = 0;         // of the segment after the last one
  uint32_t boot = 1;         // higher than in any frame on disk
  uint64_t next_number = 1;  // for new files
};

// A frame that is bad with a later one that vouches for it, and anything else that no crash leaves
// behind, is DataLoss with file and place. A torn tail is cut off. The end is synced before this
// returns.
StatusOr<RecoveredLog> RecoverLog(Files& files, const std::string& directory);

// The frames of one segment, in order, read about a megabyte at a time.
class FrameScanner {
 public:
  // From `offset` (a frame's first byte) to `limit`, both from the segment's first byte.
  FrameScanner(File& file, Lsn base, uint64_t offset, uint64_t limit)
      : file_(file), base_(base), offset_(offset), limit_(limit) {}

  // The next frame. False at the first place where there is no good frame.
  StatusOr<bool> Next();
  const FrameHeader& header() const { return header_; }
  const std::vector<FrameItem>& items() const { return items_; }
  // Of the frame's bytes; views of items() stay valid as long as it lives.
  const std::shared_ptr<char[]>& buffer() const { return buffer_; }
  // Of the frame found last.
  uint64_t frame_offset() const { return frame_offset_; }
  // Behind the last good frame.
  uint64_t offset() const { return offset_; }

 private:
  StatusOr<std::string_view> Load(uint64_t offset, uint64_t size);

  File& file_;
  const Lsn base_;
  uint64_t offset_;
  const uint64_t limit_;
  uint64_t frame_offset_ = 0;
  uint32_t boot_ = 0;
  FrameHeader header_;
  std::vector<FrameItem> items_;
  std::shared_ptr<char[]> buffer_;
  uint64_t buffer_begin_ = 0;
  uint64_t buffer_size_ = 0;
};

}  // namespace millrace::storage
