#include "pubsub/subscription/shard.h"

#include <algorithm>
#include <set>

#include "base/log.h"

namespace millrace::pubsub {
namespace {

ShardContext MakeContext(SubscriptionShardEnvironment environment) {
  ShardContext context;
  context.ack_id_key = SipKey::From(environment.ack_id_key);
  context.partition = environment.topic->partition().partition;
  context.environment = std::move(environment);
  return context;
}

// Gives up a waiting pull when its caller drops it.
class PullHandle {
 public:
  PullHandle(std::weak_ptr<LocalSubscriptionShard> shard, uint64_t id)
      : shard_(std::move(shard)), id_(id) {}
  PullHandle(const PullHandle&) = delete;
  PullHandle& operator=(const PullHandle&) = delete;
  ~PullHandle() {
    auto shard = shard_.lock();
    if (shard == nullptr) return;
    SerialExecutor& executor = shard->context().executor();
    executor.Post([shard = std::move(shard), id = id_] { shard->deliverer().CancelPull(id); });
  }

 private:
  std::weak_ptr<LocalSubscriptionShard> shard_;
  uint64_t id_;
};

}  // namespace

std::shared_ptr<SubscriptionShard> SubscriptionShard::Make(SubscriptionShardEnvironment environment,
                                                           SubscriptionSettings settings,
                                                           uint64_t start_offset) {
  auto shard = std::make_shared<LocalSubscriptionShard>(std::move(environment), std::move(settings),
                                                        start_offset);
  shard->SetSelf(shard);
  return shard;
}

std::string SubscriptionShard::RowPrefix(SubscriptionUid uid) { return RowPrefixOf(uid); }

LocalSubscriptionShard::LocalSubscriptionShard(SubscriptionShardEnvironment environment,
                                               SubscriptionSettings settings, uint64_t start_offset)
    : context_(MakeContext(std::move(environment))),
      settings_(settings),
      state_(start_offset),
      recorder_(context_),
      deliverer_(context_, state_.blocks, *this),
      survey_(context_, state_, [this] { recorder_.MarkDirty(); }),
      retention_(context_, state_, [this](const AckedRun& run) {
        deliverer_.Forget(run.first, run.first + run.count);
        ApplyAndRecord(run);
        deliverer_.Pump();
      }) {
  deliverer_.SetPullDeadline(settings_.ack_deadline);
}

void LocalSubscriptionShard::SetSelf(const std::shared_ptr<LocalSubscriptionShard>& self) {
  context_.self = self;
}

// Recovery.

Status LocalSubscriptionShard::LoadRow(std::string_view key, std::string_view value) {
  SubscriptionUid uid = context_.environment.uid;
  uint64_t block = 0;
  if (key == StateRowKey(uid)) {
    MR_ASSIGN_OR_RETURN(StateRow row, DecodeStateRow(value));
    recorder_.RestoreSeq(row.seq);
    state_.blocks.RestoreCursor(row.cursor);
    state_.summaries.RestoreEnd(row.counted_end, row.cursor);
    rows_from_block_ = row.cursor / AckBlocks::kBlock;
    return OkStatus();
  }
  // The state row's key comes before those of blocks.
  if (!ParseBlockRowKey(uid, key, &block)) return DataLoss("subscription row with an unknown key");
  if (block < rows_from_block_) return OkStatus();
  size_t summary_size = value.empty() ? 0 : static_cast<uint8_t>(value.front());
  if (value.size() < 1 + summary_size) return DataLoss("subscription block row is cut short");
  if (!state_.summaries.RestoreBlock(block, value.substr(1, summary_size)) ||
      !state_.blocks.RestoreBlock(block, value.substr(1 + summary_size))) {
    return DataLoss("subscription block row is malformed");
  }
  return OkStatus();
}

Status LocalSubscriptionShard::Replay(const storage::Record& record) {
  if (record.seq <= recorder_.seq()) return OkStatus();  // the rows hold it
  if (record.seq != recorder_.seq() + 1) {
    return DataLoss(fmt::format("subscription {}: record {} follows {}", context_.environment.name,
                                record.seq, recorder_.seq()));
  }
  MR_ASSIGN_OR_RETURN(std::vector<AckedRun> runs, DecodeAcksRecord(record.payload.view()));
  for (const AckedRun& run : runs) state_.Apply(run, [](const AckedRun&) {});
  recorder_.RestoreSeq(record.seq);
  // The next checkpoint moves the replay position past this record, so it must hold it.
  recorder_.MarkDirty();
  return OkStatus();
}

void LocalSubscriptionShard::Start() {
  state_.summaries.OnCursor(state_.blocks.cursor());
  deliverer_.Start();
}

// Administration.

void LocalSubscriptionShard::UpdateSettings(SubscriptionSettings settings) {
  settings_ = settings;
  deliverer_.SetPullDeadline(settings_.ack_deadline);
  deliverer_.SendProperties(settings_.properties);
}

void LocalSubscriptionShard::End(Status status) {
  if (!ended_.ok()) return;
  recorder_.Flush();  // acks that were accepted stay acked
  ended_ = std::move(status);
  context_.topic().Forget(context_.executor());
  deliverer_.End(ended_);
  survey_.End(ended_);
}

// Subscribers.

std::shared_ptr<void> LocalSubscriptionShard::Pull(Broker::PullRequest request,
                                                   Reply<std::vector<Delivery>> reply) {
  if (!ended_.ok()) {
    reply(ended_);
    return nullptr;
  }
  uint64_t id = deliverer_.Pull(request, std::move(reply));
  return std::make_shared<PullHandle>(
      std::static_pointer_cast<LocalSubscriptionShard>(shared_from_this()), id);
}

void LocalSubscriptionShard::Acknowledge(std::vector<std::string> ack_ids, StatusReply reply) {
  if (!ended_.ok()) return reply(ended_);
  AcknowledgeRanges(
      ParseAckIds(ack_ids, context_.ack_id_key, context_.environment.uid, context_.partition));
  recorder_.Add(std::move(reply));
}

void LocalSubscriptionShard::AcknowledgeRanges(const std::vector<AckRange>& ranges) {
  if (!ended_.ok()) return;
  for (const AckRange& range : ranges) {
    deliverer_.Settle(range, [this](uint64_t first, uint64_t count, uint64_t bytes) {
      ApplyAndRecord({first, count, bytes});
    });
  }
  deliverer_.Pump();
}

void LocalSubscriptionShard::ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline,
                                               StatusReply reply) {
  if (!ended_.ok()) return reply(ended_);
  deliverer_.ModifyDeadline(
      ParseAckIds(ack_ids, context_.ack_id_key, context_.environment.uid, context_.partition),
      deadline);
  reply(OkStatus());
}

std::unique_ptr<Stream> LocalSubscriptionShard::OpenStream(
    StreamOptions options, std::shared_ptr<StreamConsumer> consumer) {
  auto self = std::static_pointer_cast<LocalSubscriptionShard>(shared_from_this());
  if (!ended_.ok()) {
    consumer->OnEnd(ended_);
    return MakeSubscriptionStream(std::move(self), 0);
  }
  consumer->OnProperties(settings_.properties);
  return MakeSubscriptionStream(std::move(self),
                                deliverer_.OpenSession(options, std::move(consumer)));
}

// Acks from wherever they come.

void LocalSubscriptionShard::ApplyAndRecord(const AckedRun& run) {
  state_.Apply(run, [this](const AckedRun& fresh) { recorder_.Add(fresh); });
}

void LocalSubscriptionShard::OnVanished(uint64_t first, uint64_t count) {
  MR_LOG(kWarning,
         "subscription {}: its topic holds no messages at offsets {} to {} any more; they count as "
         "acked",
         context_.environment.name, first, first + count - 1);
  deliverer_.Forget(first, first + count);
  ApplyAndRecord({first, count, AckedRun::kUnknownBytes});
}

void LocalSubscriptionShard::OnRead(const std::vector<StoredMessage>& messages) {
  survey_.OnRead(messages);
}

void LocalSubscriptionShard::Expire(WallTime now) {
  if (!ended_.ok()) return;
  deliverer_.DropIdleReads();
  retention_.ExpireBefore(now - settings_.retention);
}

// Figures.

void LocalSubscriptionShard::RegisterTimestampAttribute(const std::string& attribute,
                                                        Duration band) {
  if (ended_.ok()) survey_.Register(attribute, band);
}

void LocalSubscriptionShard::QueryBacklog(const std::optional<std::string>& attribute,
                                          Duration band,
                                          Callback<void(StatusOr<BacklogInfo>)> done) {
  if (!ended_.ok()) return done(ended_);
  survey_.Query(attribute, band, std::move(done));
}

uint32_t LocalSubscriptionShard::CountNeeded(uint64_t first, uint32_t count) const {
  return static_cast<uint32_t>(state_.blocks.CountUnacked(first, first + count));
}

SubscriptionShard::Figures LocalSubscriptionShard::GetFigures() const {
  Figures figures;
  uint64_t end = context_.topic().CommittedEnd();
  figures.backlog_messages = state_.blocks.CountUnacked(state_.blocks.cursor(), end);
  // As far as it is counted; the rest is caught up with in the background.
  figures.backlog_bytes = state_.summaries.bytes();
  if (ended_.ok() && (state_.summaries.counted_end() < end || state_.summaries.HasStale()))
    survey_.CatchUp();
  figures.outstanding = deliverer_.outstanding();
  figures.delivered = deliverer_.counters().delivered;
  figures.expired_leases = deliverer_.counters().expired;
  figures.nacked = deliverer_.counters().nacked;
  figures.acked = state_.acked;
  figures.oldest_unacked_publish = survey_.OldestKnown();
  figures.open_streams = deliverer_.open_sessions();
  return figures;
}

// Checkpoint.

void LocalSubscriptionShard::WriteCheckpoint(Callback<void(storage::WriteBatch)> done) {
  auto self = std::static_pointer_cast<LocalSubscriptionShard>(shared_from_this());
  context_.executor().Post(
      [self = std::move(self), done = std::move(done)]() mutable { done(self->MakeCheckpoint()); });
}

storage::WriteBatch LocalSubscriptionShard::MakeCheckpoint() {
  constexpr storage::Table kTable = storage::Table::kBroker;
  storage::WriteBatch batch;
  recorder_.Flush();  // rows hold nothing that no record holds
  recorder_.WasCheckpointed();
  std::set<uint64_t> dirty = state_.blocks.TakeDirty();
  dirty.merge(state_.summaries.TakeDirty());
  SubscriptionUid uid = context_.environment.uid;
  // The rows of a deleted subscription go with it; one that was only stopped leaves its state
  // behind.
  if (ended_.code() == StatusCode::kNotFound) return batch;
  uint64_t base = state_.blocks.cursor() / AckBlocks::kBlock;
  if (base > rows_from_block_) {
    batch.DeleteRange(kTable, BlockRowKey(uid, rows_from_block_), BlockRowKey(uid, base));
    rows_from_block_ = base;
  }
  for (uint64_t block : dirty) {
    if (block < base) continue;
    std::string summary;
    state_.summaries.AppendTo(block, &summary);
    std::string value(1, static_cast<char>(summary.size()));
    batch.Put(kTable, BlockRowKey(uid, block),
              value + summary + state_.blocks.SerializeBlock(block));
  }
  batch.Put(
      kTable, StateRowKey(uid),
      EncodeStateRow({recorder_.seq(), state_.blocks.cursor(), state_.summaries.counted_end()}));
  return batch;
}

}  // namespace millrace::pubsub
