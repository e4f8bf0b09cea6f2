// State machine of one partition of one topic: offsets, message ids, publish times, producers.
//
// decide → record → apply: a publish is decided and applied in one turn, its record and messages go
// to the log as one, and when they are durable the committed end moves, then the reply is given. A
// publish costs O(waiting sessions).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/executor.h"
#include "pubsub/broker.h"
#include "pubsub/topic/log_topic_reader.h"
#include "pubsub/topic/publish_scanner.h"
#include "pubsub/topic/topic_records.h"
#include "storage/checkpoint.h"
#include "storage/commit_log.h"

namespace millrace::pubsub {

struct TopicShardEnvironment {
  TopicUid uid;
  uint32_t partition = 0;
  std::string name;  // full resource name, for texts
  Executor* pool = nullptr;
  const Clock* clock = nullptr;
  Executor* blocking = nullptr;
  storage::CommitLog* log = nullptr;
  storage::Checkpointer* checkpointer = nullptr;
};

// Guarantees: offsets without gaps; ids of 16 digits, unique within the topic's incarnation,
// consecutive within a call, never given twice even when nothing was stored; publish times that
// never go back. Lives on its own serial executor; methods say where they may be called. Owned by
// the broker and by whatever waits for it. Does not belong here: names and settings (catalog/), the
// wire form (PublishScanner), reading (LogTopicReader), who is subscribed beyond whether anybody
// is.
class TopicShard : public storage::Checkpointed, public std::enable_shared_from_this<TopicShard> {
 public:
  explicit TopicShard(TopicShardEnvironment environment);

  // Recovery, on the loading thread, before Start. Rows are those under RowPrefix(uid).
  static std::string RowPrefix(TopicUid uid);
  Status LoadRow(std::string_view key, std::string_view value);
  Status Replay(const storage::Record& record);
  void Start();

  // Any thread.
  void Publish(ScannedPublish publish, Reply<PublishResult> reply);
  // See Broker::PublishOnce.
  void PublishOnce(std::string producer, uint64_t sequence, ScannedPublish publish,
                   StatusReply reply);
  // Publishes are answered with `status` from now on.
  void End(Status status);
  void WriteCheckpoint(Callback<void(storage::WriteBatch)> done) override;
  // Somebody needs what is published from now on. The answer is where: at or before anything
  // decided later.
  uint64_t Attach();
  void Detach() { attached_.fetch_sub(1); }
  const std::shared_ptr<LogTopicReader>& reader() const { return reader_; }
  SerialExecutor& executor() { return executor_; }
  const std::string& name() const { return environment_.name; }

  struct Figures {
    uint64_t messages = 0, bytes = 0, requests = 0;
  };
  Figures GetFigures() const;

 private:
  static constexpr uint64_t kIdsReserved = 1 << 20;
  static constexpr size_t kBytesPerCheckpointCheck = 16 << 20;

  void DecidePublish(ScannedPublish publish, Reply<PublishResult> reply);
  void DecidePublishOnce(std::string producer, uint64_t sequence, ScannedPublish publish,
                         StatusReply reply);
  // A status that refuses all publishes, or OK.
  Status MayPublish() const;
  void Store(ScannedPublish publish, TopicRecord record, StatusReply reply);
  void GiveIdsOnly(uint32_t count, Reply<PublishResult> reply);
  // Numbers, applies and appends; then posts `reply` with OK.
  void Append(const TopicRecord& record, std::optional<storage::TopicEntry> entry,
              StatusReply reply);
  void Apply(const TopicRecord& record, const storage::TopicEntry* entry);
  void MarkDirty();
  storage::WriteBatch TakeChanges();

  const TopicShardEnvironment environment_;
  const storage::TopicPartition partition_;
  const storage::ShardId shard_;
  const std::shared_ptr<LogTopicReader> reader_;
  SerialExecutor executor_;

  // Written on the executor (and while recovering).
  uint64_t seq_ = 0;
  std::atomic<uint64_t> next_offset_{0};
  uint64_t next_id_;
  uint64_t reserved_id_end_ = 0;
  uint64_t durable_id_end_ = 0;
  WallTime last_stamp_;
  absl::flat_hash_map<std::string, uint64_t> producers_;
  absl::flat_hash_set<std::string> dirty_producers_;
  bool changed_ = false;  // while recovering
  bool told_ = false;     // the checkpointer knows
  Status ended_;
  size_t bytes_since_check_ = 0;

  std::atomic<int64_t> attached_{0};
  std::atomic<uint64_t> messages_{0}, bytes_{0}, requests_{0};
};

}  // namespace millrace::pubsub
