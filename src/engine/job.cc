// The life of a job: recovery, the end, and what others ask of it.
#include "engine/job.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "engine/job_core.h"
#include "engine/rows.h"

namespace millrace::engine {

using storage::Table;

namespace {
std::string JobRow(JobUid uid) { return RangePrefix(uid.value, kJobStage, 0, RowKind::kMeta); }

Status CheckPlan(const Plan& plan) {
  if (plan.stages.size() >= kJobStage)
    return ResourceExhausted(
        fmt::format("the pipeline has {} stages; at most 65534 are possible", plan.stages.size()));
  for (const StageSpec& stage : plan.stages) {
    for (const auto* list : {&stage.inputs, &stage.outputs}) {
      for (CollectionId collection : *list) {
        if (collection.value >= plan.collections.size())
          return Internal(fmt::format("stage {} names collection {} of {}", stage.name,
                                      collection.value, plan.collections.size()));
      }
    }
    const std::string why = stage.input == InputKind::kGrouped
                                ? windowing::WhyUnsupported(stage.strategy)
                                : std::string();
    if (!why.empty()) return Unimplemented(fmt::format("{}: {}", stage.name, why));
    if (stage.input == InputKind::kGrouped && stage.strategy.merging) {
      return Unimplemented(
          fmt::format("{}: this server cannot group in merging windows (sessions)", stage.name));
    }
  }
  return OkStatus();
}
}  // namespace

StatusOr<std::shared_ptr<Job>> Job::Make(JobUid uid, std::string name,
                                         std::shared_ptr<const Plan> plan, JobOptions options,
                                         JobEnvironment environment) {
  MR_RETURN_IF_ERROR(CheckPlan(*plan));
  for (const StageSpec& stage : plan->stages) {
    if (stage.work == Work::kBundle && !environment.runners.contains(stage.environment)) {
      return Internal(
          fmt::format("stage {} runs in environment \"{}\", for which there is no runner",
                      stage.name, stage.environment));
    }
  }
  auto job = std::make_shared<JobCore>(uid, std::move(name), std::move(plan), std::move(options),
                                       std::move(environment));
  job->Wire();
  return std::shared_ptr<Job>(std::move(job));
}

JobUid Job::OwnerOf(const storage::ShardId& shard) { return {JobOfShard(shard)}; }

Status Job::Purge(storage::Storage& storage, JobUid uid) {
  storage::WriteBatch batch;
  const std::string prefix = JobPrefix(uid.value);
  for (Table table : {Table::kPending, Table::kState, Table::kTimers, Table::kDedup}) {
    batch.DeleteRange(table, prefix, PrefixEnd(prefix));
  }
  return storage.store->Write(batch);
}

// ---- Recovery.

Status JobCore::LoadView() {
  MR_ASSIGN_OR_RETURN(std::optional<std::string> row,
                      environment_.storage->store->Get(Table::kPending, JobRow(uid_)));
  if (row) {
    storage::ByteReader in(*row);
    epoch_ = in.Varint();
    job_seq_ = in.Varint();
    const std::string_view metrics = in.String();
    if (!in.ok() || !committed_.Parse(metrics)) return DataLoss("engine: malformed row of a job");
  }
  for (auto& stage : stages_) {
    for (auto& range : stage->ranges) {
      MR_RETURN_IF_ERROR(range->Load(commit_->TimesOf(*stage)));
      keeper_.SetFloor(stage->id, range->input_floor(), range->output_floor());
    }
  }
  loaded_ = true;
  return OkStatus();
}

Status JobCore::Replay(const storage::Record& record) {
  const uint32_t stage = StageOfShard(record.shard);
  if (stage == kJobStage) {
    MR_ASSIGN_OR_RETURN(StartRecord start, StartRecord::Parse(record.payload.view()));
    epoch_ = std::max(epoch_, start.epoch);
    job_seq_ = std::max(job_seq_, record.seq);
    return OkStatus();
  }
  const uint32_t range = RangeOfShard(record.shard);
  if (stage >= stages_.size() || range >= stages_[stage]->ranges.size()) {
    return DataLoss("engine: a record names a range that the job's plan does not have");
  }
  return commit_->Replay(*stages_[stage], *stages_[stage]->ranges[range], record.seq,
                         record.payload);
}

void JobCore::WriteCheckpoint(Callback<void(storage::WriteBatch)> done) {
  executor_->Post([weak = weak_from_this(), done = std::move(done)]() mutable {
    auto self = weak.lock();
    if (!self) return;
    storage::WriteBatch batch;
    if (self->phase_ != Phase::kEnded) self->AppendRows(batch);
    done(std::move(batch));
  });
}

void JobCore::AppendRows(storage::WriteBatch& batch) {
  std::string row, metrics;
  storage::PutVarint(row, epoch_);
  storage::PutVarint(row, job_seq_);
  committed_.AppendTo(metrics);
  storage::PutString(row, metrics);
  batch.Put(Table::kPending, JobRow(uid_), row);
  for (auto& stage : stages_) {
    for (auto& range : stage->ranges) range->Checkpoint(batch);
  }
}

// ---- The end.

// Nothing more is appended; the end is told when what was appended is durable, since it says that
// results stand.
void JobCore::End(Status status) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStarting && phase_ != Phase::kNew) return;
  phase_ = Phase::kEnding;
  if (!status.ok() && status.code() != StatusCode::kCancelled)
    messages_.Tell(Importance::kError, std::string(MessageOf(status)));
  if (!status.ok()) ReleaseSources();
  commit_->Barrier([this, status = std::move(status)] {
    phase_ = Phase::kEnded;
    StopParts();
    environment_.listener->OnFinished(status);
  });
}

void JobCore::ReleaseSources() {
  std::vector<std::unique_ptr<Bundle>> abandoned = dispatcher_->Abandon();
  for (auto& loop : source_loops_) {
    std::vector<uint64_t> handles;
    const auto give_back = [&handles](const SourcePending& pending) {
      handles.insert(handles.end(), pending.handles.begin(), pending.handles.end());
    };
    for (auto& range : stages_[loop->stage().value]->ranges) {
      for (auto& pending : range->offered()) give_back(*pending);
    }
    for (auto& bundle : abandoned) {
      if (bundle->stage != loop->stage()) continue;
      for (Item& item : bundle->items) {
        if (auto* pending = std::get_if<std::unique_ptr<SourcePending>>(&item.work))
          give_back(**pending);
      }
    }
    if (!handles.empty()) loop->Release(std::move(handles));
  }
}

void JobCore::StopParts() {
  if (timer_ != 0) environment_.timers->Cancel(std::exchange(timer_, 0));
  for (auto& [name, runner] : environment_.runners) runner->Stop();
  for (auto& source : sources_) source->Stop();
  for (auto& sink : sinks_) sink->Stop();
}

void JobCore::Cancel() {
  OnExecutor([this] { End(Cancelled("the job was cancelled")); })();
}

void JobCore::Drain() {
  OnExecutor([this] {
    drain_asked_ = true;
    if (phase_ != Phase::kRunning) return;
    for (auto& loop : source_loops_) loop->Drain();
    Wake();
  })();
}

void JobCore::Suspend() {
  auto stopped = std::make_shared<std::promise<void>>();
  std::future<void> wait = stopped->get_future();
  executor_->Post([weak = weak_from_this(), stopped] {
    if (auto self = weak.lock(); self && self->phase_ != Phase::kEnded) {
      self->phase_ = Phase::kSuspended;
      self->StopParts();
    }
    stopped->set_value();
  });
  wait.wait();
}

// ---- What others may see.

void JobCore::Metrics(Callback<void(std::vector<Metric>, std::vector<Metric>)> done) {
  executor_->Post([self = shared_from_this(), done = std::move(done)]() mutable {
    MetricTable attempted = self->committed_;
    for (const Metric& metric : self->failed_.Report()) attempted.Merge(metric);
    done(attempted.Report(), self->committed_.Report());
  });
}

void JobCore::Progress(Callback<void(std::vector<StageProgress>)> done) {
  executor_->Post([self = shared_from_this(), done = std::move(done)]() mutable {
    std::vector<StageProgress> all;
    for (const auto& stage : self->stages_) {
      StageProgress progress;
      progress.name = stage->spec->name;
      progress.input_watermark = self->keeper_.input(stage->id);
      progress.output_watermark = self->keeper_.output(stage->id);
      for (const auto& range : stage->ranges) progress.pending_elements += range->waiting();
      progress.elements_in = stage->elements_in;
      progress.bundles = stage->bundles;
      progress.failed_bundles = stage->failed_bundles;
      progress.parked_keys = stage->retry.parked();
      progress.in_flight = stage->in_flight;
      all.push_back(std::move(progress));
    }
    done(std::move(all));
  });
}

}  // namespace millrace::engine
