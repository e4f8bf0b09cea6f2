#include "pubsub/catalog/catalog_shard.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "pubsub/catalog/names.h"
#include "pubsub/catalog/pages.h"
#include "pubsub/catalog/resource_settings.h"
#include "pubsub/topic/topic_shard.h"
#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

using storage::Table;
using storage::WriteBatch;

constexpr storage::ShardId kCatalogShard{storage::ShardKind::kCatalog, 0};

void RemoveRows(WriteBatch* rows, const std::string& prefix) {
  rows->DeleteRange(Table::kBroker, prefix, PrefixEnd(prefix));
}

std::string VarintBytes(uint64_t value) {
  std::string out;
  storage::PutVarint(out, value);
  return out;
}

// Fills one page from a sorted range of names; returns the next page's token.
template <typename It, typename NameOf, typename Emit>
std::string FillPage(It it, It end, size_t size, NameOf name_of, Emit emit) {
  std::string_view last;
  for (; it != end; ++it) {
    if (size-- == 0) return PageToken(last);
    last = name_of(it);
    emit(it);
  }
  return "";
}

}  // namespace

CatalogShard::CatalogShard(CatalogEnvironment environment,
                           std::shared_ptr<CatalogListener> listener)
    : environment_(environment), listener_(std::move(listener)), executor_(*environment.pool) {}

// --- Recovery, commit, apply ---

Status CatalogShard::LoadRow(std::string_view key, std::string_view value) {
  storage::ByteReader reader(value);
  if (key == kCatalogSeqKey) {
    seq_ = reader.Varint();
    return reader.ok() ? OkStatus()
                       : DataLoss("The catalogue's place in the commit log cannot be read.");
  }
  MR_ASSIGN_OR_RETURN(CatalogChange change, ApplyPut(key, value));
  if (change.topic || change.subscription) listener_->OnApplied(change);
  return OkStatus();
}

Status CatalogShard::Replay(const storage::Record& record) {
  if (record.seq <= seq_) return OkStatus();
  if (record.seq != seq_ + 1) {
    return DataLoss(fmt::format(
        "The catalogue's records in the commit log do not follow each other (record {} after {}).",
        record.seq, seq_));
  }
  MR_ASSIGN_OR_RETURN(WriteBatch rows, WriteBatch::Parse(record.payload.view()));
  MR_ASSIGN_OR_RETURN(std::vector<CatalogChange> changes, Apply(rows));
  seq_ = record.seq;
  for (const CatalogChange& change : changes) listener_->OnApplied(change);
  return OkStatus();
}

void CatalogShard::Start() {
  durable_seq_ = seq_;
  if (!unsaved_.empty()) MarkDirty();
}

void CatalogShard::Commit(WriteBatch rows, Task answer) {
  if (rows.empty()) {
    if (durable_seq_ == seq_) return answer();
    waiting_.emplace_back(seq_, std::move(answer));
    return;
  }
  auto changes = Apply(rows);
  MR_CHECK(changes.ok());
  for (const CatalogChange& change : *changes) listener_->OnApplied(change);
  MarkDirty();
  std::vector<storage::Record> records(1);
  records[0].shard = kCatalogShard;
  records[0].seq = ++seq_;
  records[0].payload = SharedBytes(rows.Serialize());
  waiting_.emplace_back(seq_, std::move(answer));
  environment_.log->Append(std::move(records), [self = shared_from_this(), seq = seq_,
                                                changes = *std::move(changes)]() mutable {
    SerialExecutor& executor = self->executor_;
    executor.Post([self = std::move(self), seq, changes = std::move(changes)] {
      self->OnDurable(seq, changes);
    });
  });
}

void CatalogShard::OnDurable(uint64_t seq, const std::vector<CatalogChange>& changes) {
  durable_seq_ = seq;
  for (const CatalogChange& change : changes) listener_->OnDurable(change);
  while (!waiting_.empty() && waiting_.front().first <= seq) {
    Task answer = std::move(waiting_.front().second);
    waiting_.pop_front();
    answer();
  }
}

StatusOr<std::vector<CatalogChange>> CatalogShard::Apply(const WriteBatch& rows) {
  std::vector<CatalogChange> changes;
  for (const WriteBatch::Op& op : rows.ops()) {
    CatalogChange change;
    if (op.kind == WriteBatch::Op::kPut) {
      MR_ASSIGN_OR_RETURN(change, ApplyPut(op.key, op.value));
    } else if (op.kind == WriteBatch::Op::kDelete) {
      change = ApplyDelete(op.key);
    }
    if (change.topic || change.subscription) changes.push_back(std::move(change));
  }
  unsaved_.Append(rows);
  return changes;
}

StatusOr<CatalogChange> CatalogShard::ApplyPut(std::string_view key, std::string_view value) {
  TopicUid topic;
  SubscriptionUid subscription;
  if (ParseTopicKey(key, &topic)) {
    MR_ASSIGN_OR_RETURN(TopicRow row, ParseTopicRow(value));
    return PutTopic(std::move(row));
  }
  if (ParseSubscriptionKey(key, &subscription)) {
    MR_ASSIGN_OR_RETURN(SubscriptionRow row, ParseSubscriptionRow(value));
    return PutSubscription(std::move(row));
  }
  if (key == kCatalogNextUidKey) {
    storage::ByteReader reader(value);
    next_uid_ = reader.Varint();
  }
  return CatalogChange{};
}

CatalogChange CatalogShard::PutTopic(TopicRow row) {
  TopicState& state = topics_[row.uid];
  state.row = std::make_shared<const TopicRow>(std::move(row));
  const std::string& name = state.row->settings.name();
  if (!state.row->deleted) {
    topic_names_[name] = state.row->uid;
  } else if (auto it = topic_names_.find(name);
             it != topic_names_.end() && it->second == state.row->uid) {
    topic_names_.erase(it);
  }
  return {.topic = state.row};
}

CatalogChange CatalogShard::PutSubscription(SubscriptionRow row) {
  auto shared = std::make_shared<const SubscriptionRow>(std::move(row));
  const std::string& name = shared->settings.name();
  topics_[shared->topic].subscriptions.insert(name);
  subscription_names_[shared->uid] = name;
  subscriptions_[name] = shared;
  return {.subscription = std::move(shared)};
}

CatalogChange CatalogShard::ApplyDelete(std::string_view key) {
  CatalogChange change{.gone = true};
  TopicUid topic;
  SubscriptionUid subscription;
  if (ParseTopicKey(key, &topic)) {
    auto found = topics_.find(topic);
    if (found == topics_.end()) return {};
    change.topic = std::move(found->second.row);
    topics_.erase(found);
    auto named = topic_names_.find(change.topic->settings.name());
    if (named != topic_names_.end() && named->second == topic) topic_names_.erase(named);
  } else if (ParseSubscriptionKey(key, &subscription)) {
    auto named = subscription_names_.find(subscription);
    if (named == subscription_names_.end()) return {};
    auto found = subscriptions_.find(named->second);
    change.subscription = std::move(found->second);
    subscriptions_.erase(found);
    auto owner = topics_.find(change.subscription->topic);
    if (owner != topics_.end()) owner->second.subscriptions.erase(named->second);
    subscription_names_.erase(named);
  }
  return change;
}

void CatalogShard::MarkDirty() {
  if (std::exchange(told_, true)) return;
  environment_.checkpointer->MarkDirty(shared_from_this());
}

void CatalogShard::WriteCheckpoint(Callback<void(WriteBatch)> done) {
  executor_.Post(
      [self = shared_from_this(), done = std::move(done)]() mutable { done(self->TakeChanges()); });
}

WriteBatch CatalogShard::TakeChanges() {
  told_ = false;
  WriteBatch batch = std::move(removals_);
  batch.Append(unsaved_);
  batch.Put(Table::kBroker, kCatalogSeqKey, VarintBytes(seq_));
  removals_.Clear();
  for (const WriteBatch::Op& op : unsaved_.ops()) {
    if (op.kind == WriteBatch::Op::kDeleteRange) removals_.DeleteRange(op.table, op.key, op.value);
  }
  unsaved_.Clear();
  return batch;
}

// --- Lookups ---

StatusOr<const CatalogShard::TopicState*> CatalogShard::FindTopic(const std::string& name) const {
  MR_RETURN_IF_ERROR(CheckResourceName(name, ResourceKind::kTopic));
  auto it = topic_names_.find(name);
  if (it == topic_names_.end()) return ResourceNotFound(name);
  return &topics_.at(it->second);
}

StatusOr<std::shared_ptr<const SubscriptionRow>> CatalogShard::FindSubscription(
    const std::string& name) const {
  MR_RETURN_IF_ERROR(CheckResourceName(name, ResourceKind::kSubscription));
  auto it = subscriptions_.find(name);
  if (it == subscriptions_.end()) return ResourceNotFound(name);
  return it->second;
}

uint64_t CatalogShard::TakeUid(WriteBatch* rows) {
  uint64_t uid = next_uid_++;
  rows->Put(Table::kBroker, kCatalogNextUidKey, VarintBytes(next_uid_));
  return uid;
}

std::string CatalogShard::FreeSubscriptionName(std::string_view project) const {
  uint64_t random = environment_.random_seed ^ next_uid_ * 0x9e3779b97f4a7c15ull;
  while (true) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    std::string name = MakeResourceName(project, ResourceKind::kSubscription,
                                        fmt::format("subscription-{:016x}", random));
    if (!subscriptions_.contains(name)) return name;
  }
}

// --- Topics ---

StatusOr<pb::Topic> CatalogShard::DecideCreateTopic(pb::Topic topic, WriteBatch* rows) {
  MR_RETURN_IF_ERROR(NormalizeTopic(&topic));
  if (topic_names_.contains(topic.name())) return ResourceExists(topic.name());
  TopicRow row;
  row.uid.value = TakeUid(rows);
  row.settings = topic;
  rows->Put(Table::kBroker, TopicKey(row.uid), SerializeRow(row));
  return topic;
}

StatusOr<pb::Topic> CatalogShard::DecideUpdateTopic(const pb::UpdateTopicRequest& request,
                                                    WriteBatch* rows) {
  MR_ASSIGN_OR_RETURN(const TopicState* state, FindTopic(request.topic().name()));
  TopicRow row = *state->row;
  MR_ASSIGN_OR_RETURN(row.settings, UpdatedTopic(state->row->settings, request));
  rows->Put(Table::kBroker, TopicKey(row.uid), SerializeRow(row));
  return row.settings;
}

Status CatalogShard::DecideDeleteTopic(const std::string& name, WriteBatch* rows) {
  MR_ASSIGN_OR_RETURN(const TopicState* state, FindTopic(name));
  TopicRow row = *state->row;
  if (state->subscriptions.empty()) {
    rows->Delete(Table::kBroker, TopicKey(row.uid));
    RemoveRows(rows, TopicShard::RowPrefix(row.uid));
    return OkStatus();
  }
  row.deleted = true;
  rows->Put(Table::kBroker, TopicKey(row.uid), SerializeRow(row));
  for (const std::string& subscription_name : state->subscriptions) {
    SubscriptionRow subscription = *subscriptions_.at(subscription_name);
    subscription.settings.set_topic(std::string(kDeletedTopic));
    rows->Put(Table::kBroker, SubscriptionKey(subscription.uid), SerializeRow(subscription));
  }
  return OkStatus();
}

StatusOr<pb::ListTopicsResponse> CatalogShard::ReadTopics(
    const pb::ListTopicsRequest& request) const {
  MR_ASSIGN_OR_RETURN(std::string prefix, ParseProject(request.project(), ResourceKind::kTopic));
  MR_ASSIGN_OR_RETURN(Page page, ParsePage(request.page_size(), request.page_token()));
  pb::ListTopicsResponse response;
  auto begin =
      page.after < prefix ? topic_names_.lower_bound(prefix) : topic_names_.upper_bound(page.after);
  response.set_next_page_token(FillPage(
      begin, topic_names_.lower_bound(PrefixEnd(prefix)), page.size,
      [](auto it) { return std::string_view(it->first); },
      [&](auto it) { *response.add_topics() = topics_.at(it->second).row->settings; }));
  return response;
}

StatusOr<pb::ListTopicSubscriptionsResponse> CatalogShard::ReadTopicSubscriptions(
    const pb::ListTopicSubscriptionsRequest& request) const {
  MR_ASSIGN_OR_RETURN(const TopicState* state, FindTopic(request.topic()));
  MR_ASSIGN_OR_RETURN(Page page, ParsePage(request.page_size(), request.page_token()));
  pb::ListTopicSubscriptionsResponse response;
  response.set_next_page_token(FillPage(
      state->subscriptions.upper_bound(page.after), state->subscriptions.end(), page.size,
      [](auto it) { return std::string_view(*it); },
      [&](auto it) { response.add_subscriptions(*it); }));
  return response;
}

void CatalogShard::CreateTopic(pb::Topic topic, Reply<pb::Topic> reply) {
  WriteBatch rows;
  auto answer = DecideCreateTopic(std::move(topic), &rows);
  Commit(std::move(rows), [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::GetTopic(const std::string& name, Reply<pb::Topic> reply) {
  auto found = FindTopic(name);
  StatusOr<pb::Topic> answer =
      found.ok() ? StatusOr<pb::Topic>((*found)->row->settings) : found.status();
  Commit({}, [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply) {
  WriteBatch rows;
  auto answer = DecideUpdateTopic(request, &rows);
  Commit(std::move(rows), [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::DeleteTopic(const std::string& name, StatusReply reply) {
  WriteBatch rows;
  Status answer = DecideDeleteTopic(name, &rows);
  Commit(std::move(rows),
         [answer = std::move(answer), reply = std::move(reply)]() mutable { reply(answer); });
}

void CatalogShard::ListTopics(const pb::ListTopicsRequest& request,
                              Reply<pb::ListTopicsResponse> reply) {
  Commit({}, [answer = ReadTopics(request), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest& request,
                                          Reply<pb::ListTopicSubscriptionsResponse> reply) {
  Commit({}, [answer = ReadTopicSubscriptions(request), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

// --- Subscriptions ---

StatusOr<pb::Subscription> CatalogShard::DecideCreateSubscription(pb::Subscription subscription,
                                                                  WriteBatch* rows) {
  MR_ASSIGN_OR_RETURN(ResourceName topic_name,
                      ParseResourceName(subscription.topic(), ResourceKind::kTopic));
  if (subscription.name().empty()) subscription.set_name(FreeSubscriptionName(topic_name.project));
  MR_RETURN_IF_ERROR(NormalizeSubscription(&subscription));
  MR_ASSIGN_OR_RETURN(const TopicState* topic, FindTopic(subscription.topic()));
  if (subscriptions_.contains(subscription.name())) return ResourceExists(subscription.name());
  SubscriptionRow row;
  row.uid.value = TakeUid(rows);
  row.topic = topic->row->uid;
  row.start_offset = listener_->Attach(row.topic);
  row.settings = std::move(subscription);
  rows->Put(Table::kBroker, SubscriptionKey(row.uid), SerializeRow(row));
  return SubscriptionAnswer(row.settings);
}

StatusOr<pb::Subscription> CatalogShard::DecideUpdateSubscription(
    const pb::UpdateSubscriptionRequest& request, WriteBatch* rows) {
  MR_ASSIGN_OR_RETURN(auto stored, FindSubscription(request.subscription().name()));
  SubscriptionRow row = *stored;
  MR_ASSIGN_OR_RETURN(row.settings, UpdatedSubscription(stored->settings, request));
  rows->Put(Table::kBroker, SubscriptionKey(row.uid), SerializeRow(row));
  return SubscriptionAnswer(row.settings);
}

Status CatalogShard::DecideDeleteSubscription(const std::string& name, WriteBatch* rows) {
  MR_ASSIGN_OR_RETURN(auto stored, FindSubscription(name));
  rows->Delete(Table::kBroker, SubscriptionKey(stored->uid));
  RemoveRows(rows, SubscriptionShard::RowPrefix(stored->uid));
  const TopicState& topic = topics_.at(stored->topic);
  if (topic.row->deleted && topic.subscriptions.size() == 1) {
    rows->Delete(Table::kBroker, TopicKey(stored->topic));
    RemoveRows(rows, TopicShard::RowPrefix(stored->topic));
  }
  return OkStatus();
}

StatusOr<pb::ListSubscriptionsResponse> CatalogShard::ReadSubscriptions(
    const pb::ListSubscriptionsRequest& request) const {
  MR_ASSIGN_OR_RETURN(std::string prefix,
                      ParseProject(request.project(), ResourceKind::kSubscription));
  MR_ASSIGN_OR_RETURN(Page page, ParsePage(request.page_size(), request.page_token()));
  pb::ListSubscriptionsResponse response;
  auto begin = page.after < prefix ? subscriptions_.lower_bound(prefix)
                                   : subscriptions_.upper_bound(page.after);
  response.set_next_page_token(FillPage(
      begin, subscriptions_.lower_bound(PrefixEnd(prefix)), page.size,
      [](auto it) { return std::string_view(it->first); },
      [&](auto it) { *response.add_subscriptions() = SubscriptionAnswer(it->second->settings); }));
  return response;
}

void CatalogShard::CreateSubscription(pb::Subscription subscription,
                                      Reply<pb::Subscription> reply) {
  WriteBatch rows;
  auto answer = DecideCreateSubscription(std::move(subscription), &rows);
  Commit(std::move(rows), [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::GetSubscription(const std::string& name, Reply<pb::Subscription> reply) {
  auto found = FindSubscription(name);
  StatusOr<pb::Subscription> answer =
      found.ok() ? StatusOr<pb::Subscription>(SubscriptionAnswer((*found)->settings))
                 : found.status();
  Commit({}, [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                                      Reply<pb::Subscription> reply) {
  WriteBatch rows;
  auto answer = DecideUpdateSubscription(request, &rows);
  Commit(std::move(rows), [answer = std::move(answer), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

void CatalogShard::DeleteSubscription(const std::string& name, StatusReply reply) {
  WriteBatch rows;
  Status answer = DecideDeleteSubscription(name, &rows);
  Commit(std::move(rows),
         [answer = std::move(answer), reply = std::move(reply)]() mutable { reply(answer); });
}

void CatalogShard::ListSubscriptions(const pb::ListSubscriptionsRequest& request,
                                     Reply<pb::ListSubscriptionsResponse> reply) {
  Commit({}, [answer = ReadSubscriptions(request), reply = std::move(reply)]() mutable {
    reply(std::move(answer));
  });
}

}  // namespace millrace::pubsub
