#include "pubsub/topic/topic_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pubsub/topic/entry_body.h"
#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr char kStateRow = 's';
constexpr char kProducerRow = 'p';

// Incarnations and partitions begin far apart, so that ids are hardly ever seen twice across topics
// either.
uint64_t FirstMessageId(TopicUid uid, uint32_t partition) {
  uint64_t mixed = uid.value * 0x9e3779b97f4a7c15ull;
  mixed ^= mixed >> 32;
  return kMessageIdMin + (mixed + partition * 97) % 8000 * 1'000'000'000'000ull;
}

void PutBigEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

TopicShard::TopicShard(TopicShardEnvironment environment)
    : environment_(std::move(environment)),
      partition_{environment_.uid.value, environment_.partition},
      shard_{storage::ShardKind::kTopic,
             environment_.uid.value | uint64_t{environment_.partition} << 48},
      reader_(std::make_shared<LogTopicReader>(partition_, *environment_.log, *environment_.clock,
                                               *environment_.blocking)),
      executor_(*environment_.pool),
      next_id_(FirstMessageId(environment_.uid, environment_.partition)) {}

std::string TopicShard::RowPrefix(TopicUid uid) {
  std::string prefix = "topic/";
  PutBigEndian(prefix, uid.value, 8);
  return prefix;
}

Status TopicShard::LoadRow(std::string_view key, std::string_view value) {
  key.remove_prefix(RowPrefix(environment_.uid).size());
  storage::ByteReader reader(value);
  if (key.size() == 1 && key[0] == kStateRow) {
    seq_ = reader.Varint();
    next_offset_ = reader.Varint();
    next_id_ = reader.Varint();
    reserved_id_end_ = reader.Varint();
    last_stamp_ = {static_cast<int64_t>(reader.Varint())};
  } else if (!key.empty() && key[0] == kProducerRow) {
    producers_[std::string(key.substr(1))] = reader.Varint();
  }
  return reader.ok() ? OkStatus()
                     : DataLoss(fmt::format("The stored state of topic {} cannot be read.",
                                            environment_.name));
}

Status TopicShard::Replay(const storage::Record& record) {
  if (record.seq <= seq_) return OkStatus();
  MR_ASSIGN_OR_RETURN(TopicRecord decided, TopicRecord::Parse(record.payload.view()));
  bool has_entry = decided.kind == TopicRecord::Kind::kPublish;
  if (record.seq != seq_ + 1 || record.entry.has_value() != has_entry ||
      (has_entry && record.entry->first_offset != next_offset_)) {
    return DataLoss(fmt::format(
        "The records of topic {} in the commit log do not follow each other (record {} after {}).",
        environment_.name, record.seq, seq_));
  }
  seq_ = record.seq;
  Apply(decided, has_entry ? &*record.entry : nullptr);
  return OkStatus();
}

void TopicShard::Start() {
  next_id_ = std::max(next_id_, reserved_id_end_);
  reader_->Recover(next_offset_, last_stamp_);
  durable_id_end_ = reserved_id_end_;
  if (changed_) MarkDirty();
}

void TopicShard::Apply(const TopicRecord& record, const storage::TopicEntry* entry) {
  if (entry != nullptr) {
    next_offset_ = entry->first_offset + entry->count;
    next_id_ = record.first_id + entry->count;
    last_stamp_ = entry->publish_time;
  }
  reserved_id_end_ = std::max(reserved_id_end_, record.id_end);
  if (!record.producer.empty()) {
    uint64_t& highest = producers_[record.producer];
    highest = std::max(highest, record.sequence);
    dirty_producers_.insert(record.producer);
  }
  changed_ = true;
}

uint64_t TopicShard::Attach() {
  attached_.fetch_add(1);
  return next_offset_.load();
}

void TopicShard::Publish(ScannedPublish publish, Reply<PublishResult> reply) {
  executor_.Post([self = shared_from_this(), publish = std::move(publish),
                  reply = std::move(reply)]() mutable {
    self->DecidePublish(std::move(publish), std::move(reply));
  });
}

void TopicShard::PublishOnce(std::string producer, uint64_t sequence, ScannedPublish publish,
                             StatusReply reply) {
  executor_.Post([self = shared_from_this(), producer = std::move(producer), sequence,
                  publish = std::move(publish), reply = std::move(reply)]() mutable {
    self->DecidePublishOnce(std::move(producer), sequence, std::move(publish), std::move(reply));
  });
}

void TopicShard::End(Status status) {
  executor_.Post([self = shared_from_this(), status = std::move(status)] {
    if (self->ended_.ok()) self->ended_ = status;
  });
}

Status TopicShard::MayPublish() const {
  if (!ended_.ok()) return ended_;
  if (!environment_.log->HasRoomToGrow()) {
    return ResourceExhausted(
        "The server's disk is nearly full: publishing is refused until space is free again (free "
        "space is below "
        "--min-free). Acknowledge or delete what is not needed, or give the server more space.");
  }
  return OkStatus();
}

void TopicShard::DecidePublish(ScannedPublish publish, Reply<PublishResult> reply) {
  if (Status status = MayPublish(); !status.ok()) return reply(status);
  requests_.fetch_add(1, std::memory_order_relaxed);
  if (attached_.load() == 0) return GiveIdsOnly(publish.count, std::move(reply));
  PublishResult result{next_id_, publish.count};
  Store(std::move(publish), TopicRecord{},
        [result, reply = std::move(reply)](const Status&) mutable { reply(result); });
}

void TopicShard::DecidePublishOnce(std::string producer, uint64_t sequence, ScannedPublish publish,
                                   StatusReply reply) {
  if (Status status = MayPublish(); !status.ok()) return reply(status);
  auto known = producers_.find(producer);
  if (known != producers_.end() && sequence <= known->second) {
    // Done, but its record may not be durable yet.
    environment_.log->Append({}, [self = shared_from_this(), reply = std::move(reply)]() mutable {
      self->executor_.Post([reply = std::move(reply)]() mutable { reply(OkStatus()); });
    });
    return;
  }
  requests_.fetch_add(1, std::memory_order_relaxed);
  TopicRecord record;
  record.producer = std::move(producer);
  record.sequence = sequence;
  if (attached_.load() > 0 && publish.count > 0)
    return Store(std::move(publish), std::move(record), std::move(reply));
  record.kind = TopicRecord::Kind::kProducer;
  Append(record, std::nullopt, std::move(reply));
}

void TopicShard::Store(ScannedPublish publish, TopicRecord record, StatusReply reply) {
  record.first_id = next_id_;
  WallTime stamp = reader_->BeginPublish();
  uint32_t count = publish.count;
  messages_.fetch_add(count, std::memory_order_relaxed);
  bytes_.fetch_add(publish.size, std::memory_order_relaxed);
  storage::TopicEntry entry{partition_, next_offset_, count, stamp,
                            std::move(publish).Stamp(next_id_, stamp)};
  Append(record, std::move(entry), std::move(reply));
}

// Nobody wants the messages. Their ids are taken from a durable reservation, so that none is given
// out again after a restart.
void TopicShard::GiveIdsOnly(uint32_t count, Reply<PublishResult> reply) {
  PublishResult result{next_id_, count};
  next_id_ += count;
  if (next_id_ <= durable_id_end_) return reply(result);
  auto answer = [result, reply = std::move(reply)](const Status&) mutable { reply(result); };
  if (next_id_ > reserved_id_end_) {
    TopicRecord record;
    record.kind = TopicRecord::Kind::kReserveIds;
    record.id_end = next_id_ + kIdsReserved;
    Append(record, std::nullopt,
           [this, end = record.id_end, answer = std::move(answer)](const Status& status) mutable {
             durable_id_end_ = end;  // the callback runs on the executor, kept alive by Append
             answer(status);
           });
    return;
  }
  environment_.log->Append({}, [self = shared_from_this(), answer = std::move(answer)]() mutable {
    self->executor_.Post([answer = std::move(answer)]() mutable { answer(OkStatus()); });
  });
}

void TopicShard::Append(const TopicRecord& record, std::optional<storage::TopicEntry> entry,
                        StatusReply reply) {
  Apply(record, entry ? &*entry : nullptr);
  MarkDirty();
  bytes_since_check_ += entry ? entry->body.size() : 0;
  std::vector<storage::Record> records(1);
  records[0].shard = shard_;
  records[0].seq = ++seq_;
  records[0].payload = SharedBytes(record.Serialize());
  bool stored = entry.has_value();
  records[0].entry = std::move(entry);
  environment_.log->Append(
      std::move(records), [self = shared_from_this(), stored, end = next_offset_.load(),
                           reply = std::move(reply)]() mutable {
        if (stored) self->reader_->EndPublish(end);
        SerialExecutor& executor = self->executor_;
        executor.Post(
            [self = std::move(self), reply = std::move(reply)]() mutable { reply(OkStatus()); });
      });
  if (bytes_since_check_ >= kBytesPerCheckpointCheck) {
    bytes_since_check_ = 0;
    environment_.checkpointer->MayRun();
    environment_.log->MayHaveDied();
  }
}

void TopicShard::MarkDirty() {
  if (told_) return;
  told_ = true;
  environment_.checkpointer->MarkDirty(shared_from_this());
}

void TopicShard::WriteCheckpoint(Callback<void(storage::WriteBatch)> done) {
  executor_.Post(
      [self = shared_from_this(), done = std::move(done)]() mutable { done(self->TakeChanges()); });
}

storage::WriteBatch TopicShard::TakeChanges() {
  storage::WriteBatch batch;
  told_ = false;
  std::string prefix = RowPrefix(environment_.uid);
  std::string state;
  storage::PutVarint(state, seq_);
  storage::PutVarint(state, next_offset_);
  storage::PutVarint(state, next_id_);
  storage::PutVarint(state, reserved_id_end_);
  storage::PutVarint(state, static_cast<uint64_t>(last_stamp_.micros));
  batch.Put(storage::Table::kBroker, prefix + kStateRow, state);
  for (const std::string& producer : dirty_producers_) {
    std::string value;
    storage::PutVarint(value, producers_[producer]);
    batch.Put(storage::Table::kBroker, prefix + kProducerRow + producer, value);
  }
  dirty_producers_.clear();
  return batch;
}

TopicShard::Figures TopicShard::GetFigures() const {
  return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
          requests_.load(std::memory_order_relaxed)};
}

}  // namespace millrace::pubsub
