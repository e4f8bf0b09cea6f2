// CommitLog in memory: for --in-memory, and for tests that want commits in virtual time.
#pragma once

#include <memory>

#include "base/executor.h"
#include "storage/commit_log.h"

namespace millrace::storage {

// What a MemoryLog has "made durable". A test that plays a crash keeps it, destroys the log without
// Close (what was appended but not committed is lost, its callbacks never run) and makes a new log
// over it, which replays it.
struct MemoryLogContents;
std::shared_ptr<MemoryLogContents> MakeMemoryLogContents();

// Commits on a thread of its own.
std::unique_ptr<CommitLog> MakeMemoryLog();

// Commits in tasks posted to `executor`: Append posts one if none is waiting, and that task makes
// everything appended by then durable and runs the callbacks. Liveness is asked from such tasks
// too. So a test that turns its executor by hand decides when commits happen. With `contents`
// records are kept for Replay until TruncateBefore; without, they are dropped once committed.
std::unique_ptr<CommitLog> MakeMemoryLog(Executor* executor,
                                         std::shared_ptr<MemoryLogContents> contents = nullptr);

}  // namespace millrace::storage
