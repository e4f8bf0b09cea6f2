// How a subscription sees its topic's log: one reader per topic partition, shared by all its
// subscriptions.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "base/task.h"
#include "pubsub/types.h"
#include "storage/types.h"

namespace millrace::pubsub {

// Thread-safe. Kept alive by its subscriptions, also after the topic was deleted.
class TopicReader {
 public:
  virtual ~TopicReader() = default;
  virtual storage::TopicPartition partition() const = 0;
  // Offsets below are durable and may be delivered.
  virtual uint64_t CommittedEnd() const = 0;
  // Wall time that no later publish of this partition will be stamped before (see
  // BacklogInfo::now).
  virtual WallTime NoPublishBefore() const = 0;
  // Messages [from, end) in order as far as they still live, until `max_bytes` (at least one).
  // True: `out` is filled from memory; false: the disk is needed, use Read.
  virtual bool TryRead(uint64_t from, uint64_t end, size_t max_bytes,
                       std::vector<StoredMessage>* out) = 0;
  // The same from disk; `done` is posted to `executor`. An empty answer: nothing lives in [from,
  // end).
  virtual void Read(uint64_t from, uint64_t end, size_t max_bytes, Executor& executor,
                    Callback<void(StatusOr<std::vector<StoredMessage>>)> done) = 0;
  // Posts `task` once to `executor` as soon as CommittedEnd() > seen (at once if it is already).
  virtual void WhenGrown(uint64_t seen, Executor& executor, Task task) = 0;
  // Drops waiting tasks of this executor (the subscription goes away).
  virtual void Forget(Executor& executor) = 0;
};

}  // namespace millrace::pubsub
