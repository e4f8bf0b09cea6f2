// Keeps recovery short: now and then every shard with changes writes its state into the Store, and
// the log before that point is no longer replayed.
//
// How it is right: (1) start = the log's durable end. (2) Each dirty shard is asked for its state;
// it answers on its own executor, so every record it appended before `start` is in the answer,
// later ones may be. The answer names the shard's last seq (in its own rows), so that replay skips
// what the state already holds. (3) The batch is written only after a barrier of the log, hence
// never holds what is not durable. (4) When all have answered, the replay position `start` is
// written and the Store flushed; then the log is truncated before `start`.
#pragma once

#include <memory>
#include <set>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/task.h"
#include "storage/commit_log.h"
#include "storage/store.h"

namespace millrace::storage {

// A shard, as the checkpointer sees it.
class Checkpointed {
 public:
  virtual ~Checkpointed() = default;
  // Any thread. Answers once, from the shard's executor, with all its changes since the last answer
  // (possibly none). A callback that is dropped unanswered fails the checkpoint, and the shard is
  // asked again by the next one.
  virtual void WriteCheckpoint(Callback<void(WriteBatch)> done) = 0;
};

// Thread-safe. Runs a checkpoint when the log has grown by `log_bytes` since the last one and
// something is dirty, when asked to, and at Close. Blocking work is done on a thread of its own.
class Checkpointer {
 public:
  struct Options {
    static constexpr uint64_t kNever = UINT64_MAX;  // as log_bytes: nothing will be restarted
    uint64_t log_bytes = 256 << 20;
    Executor* executor =
        nullptr;  // runs the blocking work instead of an own thread, for tests in virtual time
  };
  Checkpointer(CommitLog& log, Store& store, Options options);
  ~Checkpointer();

  // The replay position of the last durable checkpoint; 0 for a new store.
  static StatusOr<Lsn> ReplayPosition(Store& store);

  // The shard is about to append; call it before the append, or a checkpoint that starts in between
  // skips the shard. It will be asked by the next two checkpoints, so it may apply its records when
  // they are appended or when they are durable. Cheap; repeated calls before the next checkpoint
  // are one.
  // After a restart also for a shard that was changed by replay, before the first checkpoint.
  void MarkDirty(std::shared_ptr<Checkpointed> shard);
  // Called by the log's user after appends (or by a timer): starts a checkpoint if the log has
  // grown enough.
  void MayRun();
  // Starts one now (after the running one); `done` gets the outcome.
  void Run(Callback<void(Status)> done);
  // Waits for a last checkpoint. Shards must still be able to answer.
  Status Close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::storage
