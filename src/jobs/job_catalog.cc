#include "jobs/job_catalog.h"

#include <algorithm>
#include <future>
#include <random>
#include <utility>

#include "base/log.h"
#include "fmt/format.h"

namespace millrace::jobs {
namespace {

using storage::Table;
using storage::WriteBatch;

constexpr storage::ShardId kShard{storage::ShardKind::kJobs, 0};
constexpr size_t kPreparedMax = 1000;

// Job ids appear in resource names and worker ids: what is not plain becomes a dash.
std::string Plain(const std::string& name) {
  std::string plain;
  for (char c : name.substr(0, 60)) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    plain += keep ? c : (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  if (plain.empty() || plain[0] < 'a' || plain[0] > 'z') plain = "job-" + plain;
  return plain;
}

}  // namespace

Status JobCatalog::Load() {
  auto it = services_.storage->store->NewIterator(Table::kJobs, kJobPrefix, kJobPrefixEnd);
  std::vector<JobRow> rows;
  for (it->Seek(kJobPrefix); it->Valid(); it->Next()) {
    MR_ASSIGN_OR_RETURN(JobRow row, DecodeJobRow(it->value()));
    rows.push_back(std::move(row));
  }
  MR_RETURN_IF_ERROR(it->status());
  it.reset();
  for (JobRow& row : rows) MR_RETURN_IF_ERROR(Restore(std::move(row)));
  return OkStatus();
}

Status JobCatalog::Restore(JobRow row) {
  last_uid_ = std::max(last_uid_, row.uid);
  if (IsTerminal(row.state)) {
    running_.erase(row.id);
    not_restored_.erase(row.id);
    ended_[row.id] = std::move(row);
    return OkStatus();
  }
  // An older record than what the checkpoint holds: the job's end follows in the log.
  if (ended_.contains(row.id) && !not_restored_.contains(row.id)) return OkStatus();
  if (auto it = running_.find(row.id); it != running_.end()) {
    if (row.drain) it->second->RestoreDrain();
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(auto bytes,
                      services_.storage->store->Get(Table::kJobs, PipelineKey(row.uid)));
  pipe::Pipeline pipeline;
  if (!bytes || !pipeline.ParseFromString(*bytes)) {
    return DataLoss(fmt::format("job {}: its pipeline is missing from the store", row.id));
  }
  const std::string id = row.id;
  JobRow failed = row;
  StatusOr<std::shared_ptr<JobRun>> run = MakeRun(std::move(row), std::move(pipeline));
  if (!run.ok()) {  // it ran before: another version or other roles
    MR_LOG(kError, "job {} cannot go on: {}", id, MessageOf(run.status()));
    failed.state = api::JobState::FAILED;
    failed.error = MessageOf(run.status());
    failed.changed = services_.clock->WallNow();
    ended_[id] = failed;
    not_restored_[id] = std::move(failed);
    return OkStatus();
  }
  MR_RETURN_IF_ERROR((*run)->LoadView());
  running_[id] = *std::move(run);
  return OkStatus();
}

Status JobCatalog::Replay(const storage::Record& record) {
  if (record.shard.kind == storage::ShardKind::kRange) {
    const engine::JobUid owner = engine::Job::OwnerOf(record.shard);
    for (const auto& [id, run] : running_) {
      if (run->row().uid == owner.value) return run->Replay(record);
    }
    return OkStatus();  // of a job that has ended
  }
  seq_ = std::max(seq_, record.seq);
  MR_ASSIGN_OR_RETURN(WriteBatch batch, WriteBatch::Parse(record.payload.view()));
  MR_RETURN_IF_ERROR(services_.storage->store->Write(batch));
  for (const WriteBatch::Op& op : batch.ops()) {
    if (op.kind != WriteBatch::Op::kPut || !op.key.starts_with(kJobPrefix)) continue;
    MR_ASSIGN_OR_RETURN(JobRow row, DecodeJobRow(op.value));
    MR_RETURN_IF_ERROR(Restore(std::move(row)));
  }
  return OkStatus();
}

void JobCatalog::Start() {
  services_.executor->Post([self = shared_from_this()] {
    self->started_ = true;
    // For good: the records of this life went past it, its state has holes from now on.
    for (auto& [id, row] : self->not_restored_) self->PersistEnd(std::move(row));
    self->not_restored_.clear();
    for (const auto& [id, run] : self->running_) {
      MR_LOG(kInfo, "job {} goes on", id);
      run->Start();
    }
  });
}

void JobCatalog::Stop() {
  std::promise<std::vector<std::shared_ptr<JobRun>>> taken;
  services_.executor->Post([this, &taken] {
    stopped_ = true;
    std::vector<std::shared_ptr<JobRun>> runs;
    for (const auto& [id, run] : running_) runs.push_back(run);
    for (const auto& [id, events] : ended_events_) events->Close();
    taken.set_value(std::move(runs));
  });
  for (const std::shared_ptr<JobRun>& run : taken.get_future().get()) run->Suspend();
}

StatusOr<std::shared_ptr<JobRun>> JobCatalog::MakeRun(JobRow row, pipe::Pipeline pipeline) {
  std::weak_ptr<JobCatalog> weak = shared_from_this();
  return JobRun::Make(std::move(row), std::move(pipeline), services_, [weak](JobRow ended) {
    if (auto self = weak.lock()) self->PersistEnd(std::move(ended));
  });
}

void JobCatalog::Commit(WriteBatch batch, Task done) {
  storage::Record record;
  record.shard = kShard;
  record.seq = ++seq_;
  record.payload = SharedBytes(batch.Serialize());
  std::vector<storage::Record> records;
  records.push_back(std::move(record));
  unsaved_.Append(batch);
  services_.storage->checkpointer->MarkDirty(shared_from_this());
  services_.storage->log->Append(std::move(records),
                                 [self = shared_from_this(), done = std::move(done)]() mutable {
                                   self->services_.executor->Post(std::move(done));
                                 });
}

void JobCatalog::WriteCheckpoint(Callback<void(WriteBatch)> done) {
  services_.executor->Post([self = shared_from_this(), done = std::move(done)]() mutable {
    done(std::exchange(self->unsaved_, {}));
  });
}

std::string JobCatalog::NewId(const std::string& name) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id;
  do {
    id = fmt::format("{}-{:08x}", Plain(name), static_cast<uint32_t>(random()));
  } while (prepared_.contains(id) || running_.contains(id) || ended_.contains(id));
  return id;
}

void JobCatalog::Prepare(const api::PrepareJobRequest& request, Reply<std::string> reply) {
  services_.executor->Post([self = shared_from_this(), request = api::PrepareJobRequest(request),
                            reply = std::move(reply)]() mutable {
    StatusOr<Options> options = ReadOptions(request.pipeline_options(), request.job_name());
    if (!options.ok()) return reply(options.status());
    if (auto planned = PlanJob(request.pipeline(), self->services_); !planned.ok())
      return reply(planned.status());
    if (self->prepared_.size() >= kPreparedMax) {
      auto oldest = std::ranges::min_element(self->prepared_, {},
                                             [](const auto& p) { return p.second.created; });
      self->prepared_.erase(oldest);
    }
    std::string id = self->NewId(options->job_name);
    Prepared& prepared = self->prepared_[id];
    prepared.name = options->job_name;
    prepared.pipeline.Swap(request.mutable_pipeline());
    prepared.options.Swap(request.mutable_pipeline_options());
    prepared.created = self->services_.clock->WallNow();
    reply(std::move(id));
  });
}

void JobCatalog::EnvironmentsOf(const std::string& preparation_id,
                                Reply<std::map<std::string, pipe::Environment>> reply) {
  services_.executor->Post(
      [self = shared_from_this(), preparation_id, reply = std::move(reply)]() mutable {
        auto it = self->prepared_.find(preparation_id);
        if (it == self->prepared_.end()) {
          return reply(
              NotFound(fmt::format("no job was prepared with staging token {}", preparation_id)));
        }
        const auto& environments = it->second.pipeline.components().environments();
        reply(std::map<std::string, pipe::Environment>(environments.begin(), environments.end()));
      });
}

void JobCatalog::Staged(const std::string& preparation_id,
                        std::map<std::string, pipe::Environment> environments) {
  services_.executor->Post(
      [self = shared_from_this(), preparation_id, environments = std::move(environments)] {
        auto it = self->prepared_.find(preparation_id);
        if (it == self->prepared_.end()) return;
        for (const auto& [id, environment] : environments) {
          (*it->second.pipeline.mutable_components()->mutable_environments())[id] = environment;
        }
      });
}

void JobCatalog::Run(const std::string& preparation_id, Reply<std::string> reply) {
  services_.executor->Post(
      [self = shared_from_this(), preparation_id, reply = std::move(reply)]() mutable {
        auto it = self->prepared_.find(preparation_id);
        if (it == self->prepared_.end()) {
          return reply(NotFound(fmt::format("no job was prepared with id {}", preparation_id)));
        }
        if (!self->services_.storage->log->HasRoomToGrow()) {
          return reply(
              ResourceExhausted("the disk is nearly full (--min-free): no new job is started"));
        }
        Prepared prepared = std::move(it->second);
        self->prepared_.erase(it);
        JobRow row;
        row.uid = ++self->last_uid_;
        row.id = preparation_id;
        row.name = prepared.name;
        row.state = api::JobState::RUNNING;
        row.created = row.changed = self->services_.clock->WallNow();
        row.options = prepared.options.SerializeAsString();
        WriteBatch batch;
        batch.Put(Table::kJobs, PipelineKey(row.uid), prepared.pipeline.SerializeAsString());
        batch.Put(Table::kJobs, JobKey(row.uid), EncodeJobRow(row));
        StatusOr<std::shared_ptr<JobRun>> run = self->MakeRun(row, std::move(prepared.pipeline));
        if (!run.ok()) return reply(run.status());
        self->Commit(std::move(batch),
                     [self, run = *std::move(run), reply = std::move(reply)]() mutable {
                       if (self->stopped_) return reply(Unavailable("the server is stopping"));
                       self->running_[run->row().id] = run;
                       MR_LOG(kInfo, "job {} starts", run->row().id);
                       run->Start();
                       reply(run->row().id);
                     });
      });
}

void JobCatalog::PersistEnd(JobRow row) {
  WriteBatch batch;
  batch.Put(Table::kJobs, JobKey(row.uid), EncodeJobRow(row));
  batch.Delete(Table::kJobs, PipelineKey(row.uid));
  const std::string id = row.id;
  ended_[id] = std::move(row);
  Commit(std::move(batch), [self = shared_from_this(), id] {
    auto it = self->running_.find(id);
    if (it == self->running_.end()) {
      JobRun::Purge(self->services_, self->ended_.at(id).uid);
      return;
    }
    std::shared_ptr<JobRun> run = std::move(it->second);
    self->running_.erase(it);
    self->ended_events_[id] = run->events();
    MR_LOG(kInfo, "job {} has ended: {}", id, api::JobState::Enum_Name(run->row().state));
    run->Ended();
  });
}

void JobCatalog::Cancel(const std::string& job_id, Reply<State> reply) {
  services_.executor->Post([self = shared_from_this(), job_id, reply = std::move(reply)]() mutable {
    if (auto it = self->running_.find(job_id); it != self->running_.end()) {
      it->second->Cancel();
      return reply(it->second->events()->state());
    }
    if (self->prepared_.erase(job_id) > 0) return reply(api::JobState::CANCELLED);
    StatusOr<JobView> view = self->Find(job_id);
    if (!view.ok()) return reply(view.status());
    reply(view->row.state);
  });
}

void JobCatalog::Drain(const std::string& job_id, Reply<State> reply) {
  services_.executor->Post([self = shared_from_this(), job_id, reply = std::move(reply)]() mutable {
    auto it = self->running_.find(job_id);
    if (it == self->running_.end()) {
      StatusOr<JobView> view = self->Find(job_id);
      if (!view.ok()) return reply(view.status());
      return reply(view->row.state);
    }
    std::shared_ptr<JobRun> run = it->second;
    JobRow row = run->row();
    row.drain = true;
    WriteBatch batch;
    batch.Put(Table::kJobs, JobKey(row.uid), EncodeJobRow(row));
    self->Commit(std::move(batch), [run, reply = std::move(reply)]() mutable {
      run->Drain();
      reply(run->events()->state());
    });
  });
}

StatusOr<JobView> JobCatalog::Find(const std::string& job_id) const {
  if (auto it = running_.find(job_id); it != running_.end())
    return JobView{it->second->row(), it->second->events()};
  if (auto it = ended_.find(job_id); it != ended_.end()) {
    auto events = ended_events_.find(job_id);
    if (events != ended_events_.end()) return JobView{it->second, events->second};
    auto made = std::make_shared<EventLog>();  // ended before this start: only its end is known
    if (!it->second.error.empty())
      made->AddMessage(engine::Importance::kError, it->second.error, it->second.changed);
    made->AddState(it->second.state, it->second.changed);
    made->Close();
    return JobView{it->second, std::move(made)};
  }
  return NotFound(fmt::format("no job with id {}", job_id));
}

void JobCatalog::List(Callback<void(std::vector<JobView>)> reply) {
  services_.executor->Post([self = shared_from_this(), reply = std::move(reply)]() mutable {
    std::vector<JobView> views;
    for (const auto& [id, row] : self->ended_) views.push_back(*self->Find(id));
    for (const auto& [id, run] : self->running_) {
      if (!self->ended_.contains(id)) views.push_back({run->row(), run->events()});
    }
    std::ranges::sort(views, {}, [](const JobView& view) { return view.row.uid; });
    reply(std::move(views));
  });
}

void JobCatalog::Get(const std::string& job_id, Reply<JobView> reply) {
  services_.executor->Post([self = shared_from_this(), job_id, reply = std::move(reply)]() mutable {
    reply(self->Find(job_id));
  });
}

void JobCatalog::GetPipeline(const std::string& job_id, Reply<pipe::Pipeline> reply) {
  services_.executor->Post([self = shared_from_this(), job_id, reply = std::move(reply)]() mutable {
    if (auto it = self->running_.find(job_id); it != self->running_.end())
      return reply(it->second->pipeline());
    if (auto it = self->prepared_.find(job_id); it != self->prepared_.end())
      return reply(it->second.pipeline);
    reply(NotFound(fmt::format("no running job with id {}", job_id)));
  });
}

void JobCatalog::Metrics(const std::string& job_id, Reply<api::MetricResults> reply) {
  services_.executor->Post([self = shared_from_this(), job_id, reply = std::move(reply)]() mutable {
    if (auto it = self->running_.find(job_id); it != self->running_.end()) {
      return it->second->Metrics([reply = std::move(reply)](api::MetricResults results) mutable {
        reply(std::move(results));
      });
    }
    if (auto it = self->ended_.find(job_id); it != self->ended_.end()) {
      api::MetricResults results;
      results.ParseFromString(it->second.metrics);
      return reply(std::move(results));
    }
    reply(NotFound(fmt::format("no job with id {}", job_id)));
  });
}

}  // namespace millrace::jobs
