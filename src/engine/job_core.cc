#include "engine/job_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.h"
#include "engine/rows.h"

namespace millrace::engine {
namespace {

// So many bytes waiting in front of stages that are not groupings: sources hold back.
constexpr size_t kPendingBytesMax = 128 << 20;
// So many bytes of waiting elements stay in memory.
constexpr size_t kResidentBytesMax = 256 << 20;

}  // namespace

JobCore::JobCore(JobUid uid, std::string name, std::shared_ptr<const Plan> plan, JobOptions options,
                 JobEnvironment environment)
    : uid_(uid),
      name_(std::move(name)),
      plan_(std::move(plan)),
      options_(std::move(options)),
      environment_(std::move(environment)),
      executor_(std::make_shared<SerialExecutor>(*environment_.pool)),
      keeper_(*plan_),
      messages_(*environment_.listener, *environment_.clock) {
  RetryRules rules;
  rules.bounded = !plan_->unbounded;
  rules.attempts = options_.bounded_attempts;
  rules.park_min = options_.park_min;
  rules.park_max = options_.park_max;
  for (uint32_t s = 0; s < plan_->stages.size(); ++s) {
    auto stage = std::make_unique<StageState>();
    stage->id = {s};
    stage->spec = &plan_->stages[s];
    stage->retry.SetRules(rules);
    const int ranges = stage->spec->input == InputKind::kImpulse
                           ? 1
                           : std::clamp(options_.ranges_per_stage, 1, 256);
    for (int r = 0; r < ranges; ++r) {
      stage->ranges.push_back(std::make_unique<RangeShard>(
          uid_.value, stage->id, *stage->spec, *plan_, static_cast<uint16_t>(r),
          *environment_.storage->store, options_.dedup_window));
    }
    if (stage->spec->keyed || !stage->spec->side_inputs.empty()) {
      auto place = std::make_shared<StatePlace>();
      place->job = uid_.value;
      place->stage = stage->id;
      place->ranges = stage->ranges.size();
      for (const SideInputSpec& side : stage->spec->side_inputs) {
        place->side_inputs.emplace_back(side.transform, side.name);
      }
      stage->place = std::move(place);
    }
    stages_.push_back(std::move(stage));
  }
}

JobCore::~JobCore() {
  if (timer_ != 0) environment_.timers->Cancel(timer_);
}

Task JobCore::OnExecutor(Task task) {
  return [executor = executor_, weak = weak_from_this(), task = std::move(task)]() mutable {
    executor->Post([weak = std::move(weak), task = std::move(task)]() mutable {
      if (auto self = weak.lock()) task();
    });
  };
}

template <typename T>
Callback<void(T)> JobCore::Here(Callback<void(T)> callback) {
  return [executor = executor_, weak = weak_from_this(),
          callback = std::move(callback)](T value) mutable {
    executor->Post([weak = std::move(weak), callback = std::move(callback),
                    value = std::move(value)]() mutable {
      auto self = weak.lock();
      if (self && (self->phase_ == Phase::kRunning || self->phase_ == Phase::kEnding))
        callback(std::move(value));
    });
  };
}

void JobCore::Wire() {
  BundleCommit::Parts parts;
  parts.plan = plan_.get();
  parts.job = uid_.value;
  parts.stages = &stages_;
  parts.keeper = &keeper_;
  parts.committed = &committed_;
  parts.log = environment_.storage->log.get();
  parts.store = environment_.storage->store.get();
  parts.clock = environment_.clock;
  parts.faults = options_.faults;
  parts.before_append = [this] {
    environment_.storage->checkpointer->MarkDirty(shared_from_this());
  };
  parts.on_executor = [this](Task task) { return OnExecutor(std::move(task)); };
  parts.became_durable = [this] { Wake(); };
  commit_ = std::make_unique<BundleCommit>(std::move(parts));
  MakeDispatcher();
}

void JobCore::MakeDispatcher() {
  Dispatcher::Parts parts;
  parts.plan = plan_.get();
  parts.options = &options_;
  parts.stages = &stages_;
  parts.runners = &environment_.runners;
  parts.commit = commit_.get();
  parts.keeper = &keeper_;
  parts.committed = &committed_;
  parts.failed = &failed_;
  parts.messages = &messages_;
  parts.clock = environment_.clock;
  parts.on_result = [this](uint64_t attempt) {
    return Here<BundleResult>([this, attempt](BundleResult result) {
      if (phase_ != Phase::kRunning) return;
      dispatcher_->OnResult(attempt, std::move(result));
      Wake();
    });
  };
  parts.make_state = [this](const StageState& stage, uint64_t attempt) {
    return std::make_shared<StateOverlay>(*environment_.storage->store, *environment_.pool,
                                          stage.place, attempt);
  };
  parts.close_state = [this](std::shared_ptr<StateOverlay> state, uint64_t attempt,
                             BundleResult result) {
    state->Close(Here<StatusOr<storage::WriteBatch>>(
        [this, attempt, result = std::move(result)](StatusOr<storage::WriteBatch> changes) mutable {
          if (phase_ != Phase::kRunning) return;
          dispatcher_->OnState(attempt, std::move(result), std::move(changes));
          Wake();
        }));
  };
  parts.ack = [this](StageState& stage, RangeShard& range, uint64_t run,
                     std::vector<uint64_t> handles, size_t elements) {
    for (auto& loop : source_loops_) {
      if (loop->stage() == stage.id) loop->Ack(range, run, std::move(handles), elements);
    }
  };
  parts.fail = [this](Status status) { End(std::move(status)); };
  parts.changed = [this] { Wake(); };
  dispatcher_ = std::make_unique<Dispatcher>(std::move(parts));
}

// ---- Running.

void JobCore::Start() {
  OnExecutor([this] {
    if (phase_ != Phase::kNew) return;
    phase_ = Phase::kStarting;
    AppendStart([this] {
      if (phase_ == Phase::kStarting) Begin();
    });
  })();
}

// Attempt numbers carry the epoch, which is durable before the first of them is given out.
void JobCore::AppendStart(Task on_durable) {
  environment_.storage->checkpointer->MarkDirty(shared_from_this());
  StartRecord record{++epoch_};
  std::vector<storage::Record> records;
  records.push_back({RangeShardId(uid_.value, kJobStage, 0), ++job_seq_,
                     SharedBytes(record.Serialize()), std::nullopt});
  environment_.storage->log->Append(std::move(records), OnExecutor(std::move(on_durable)));
}

void JobCore::Begin() {
  const Status loaded = loaded_ ? OkStatus() : LoadView();
  phase_ = Phase::kRunning;
  if (!loaded.ok()) {
    End(loaded);
    return;
  }
  if (!options_.faults.reuse_attempts) dispatcher_->SetAttemptFloor(epoch_ << 40);
  Status opened = OpenSources();
  if (opened.ok()) opened = OpenSinks();
  if (!opened.ok()) {
    End(opened);
    return;
  }
  for (auto& [name, runner] : environment_.runners) {
    runner->OnSlotsChanged(OnExecutorMany([this] { Wake(); }));
  }
  for (auto& stage : stages_) commit_->UpdateBounds(*stage);
  keeper_.Recompute();
  for (auto& stage : stages_) {
    for (auto& range : stage->ranges) range->Begin(commit_->TimesOf(*stage));
    commit_->UpdateBounds(*stage);
  }
  if (drain_asked_) {
    for (auto& loop : source_loops_) loop->Drain();
  }
  Turn();
}

Status JobCore::OpenSources() {
  for (auto& stage : stages_) {
    if (stage->spec->input != InputKind::kSource) continue;
    auto factory = environment_.sources.find(stage->spec->native_kind);
    if (factory == environment_.sources.end()) {
      return Unimplemented(
          fmt::format("{}: no source of kind \"{}\"", stage->spec->name, stage->spec->native_kind));
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Source> source,
                        factory->second(stage->spec->native_spec, name_, Reporter()));
    SourceLoop::Parts parts;
    parts.stage = stage.get();
    parts.source = source.get();
    parts.commit = commit_.get();
    parts.keeper = &keeper_;
    parts.messages = &messages_;
    parts.clock = environment_.clock;
    parts.options = options_;
    parts.on_batch = [this](Callback<void(SourceBatch)> callback) {
      return Here<SourceBatch>(std::move(callback));
    };
    parts.on_status = [this](Callback<void(Status)> callback) {
      return Here<Status>(std::move(callback));
    };
    parts.on_watermark = [this](Callback<void(StatusOr<windowing::Millis>)> callback) {
      return Here<StatusOr<windowing::Millis>>(std::move(callback));
    };
    parts.changed = [this] { Wake(); };
    sources_.push_back(std::move(source));
    source_loops_.push_back(std::make_unique<SourceLoop>(std::move(parts)));
  }
  return OkStatus();
}

Status JobCore::OpenSinks() {
  for (auto& stage : stages_) {
    if (stage->spec->work != Work::kSink) continue;
    auto factory = environment_.sinks.find(stage->spec->native_kind);
    if (factory == environment_.sinks.end()) {
      return Unimplemented(
          fmt::format("{}: no sink of kind \"{}\"", stage->spec->name, stage->spec->native_kind));
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink,
                        factory->second(stage->spec->native_spec, name_, Reporter()));
    for (auto& range : stage->ranges) {
      SinkLoop::Parts parts;
      parts.stage = stage.get();
      parts.range = range.get();
      parts.sink = sink.get();
      parts.commit = commit_.get();
      parts.keeper = &keeper_;
      parts.messages = &messages_;
      parts.clock = environment_.clock;
      parts.producer = fmt::format("{}/{}/{}", uid_.value, stage->id.value, range->index());
      parts.options = options_;
      parts.on_executor = [this](Callback<void(Status)> callback) {
        return Here<Status>(std::move(callback));
      };
      parts.changed = [this] { Wake(); };
      sink_loops_.push_back(std::make_unique<SinkLoop>(std::move(parts)));
    }
    sinks_.push_back(std::move(sink));
  }
  return OkStatus();
}

std::function<void(Status)> JobCore::Reporter() {
  return [executor = executor_, weak = weak_from_this()](Status status) {
    executor->Post([weak, status = std::move(status)] {
      if (auto self = weak.lock())
        self->messages_.Tell(Importance::kWarning, std::string(MessageOf(status)));
    });
  };
}

Task JobCore::OnExecutorMany(std::function<void()> task) {
  return [executor = executor_, weak = weak_from_this(), task = std::move(task)] {
    executor->Post([weak, task] {
      if (auto self = weak.lock()) task();
    });
  };
}

void JobCore::Wake() {
  if (turn_posted_ || phase_ != Phase::kRunning) return;
  turn_posted_ = true;
  OnExecutor([this] {
    turn_posted_ = false;
    Turn();
  })();
}

// Everything that can happen now: watermarks, bundles, writes, pulls; then the time of the next
// turn.
void JobCore::Turn() {
  if (phase_ != Phase::kRunning) return;
  AdvanceWatermarks();
  dispatcher_->Pump();
  if (phase_ != Phase::kRunning) return;
  for (auto& loop : sink_loops_) loop->Pump();
  const bool hold_back = !source_loops_.empty() && (dispatcher_->BacksOff() || IsBehind());
  for (auto& loop : source_loops_) loop->Pump(hold_back);
  environment_.storage->checkpointer->MayRun();
  MaySpill();
  if (IsDone()) {
    End(OkStatus());
    return;
  }
  SetTimer();
}

void JobCore::AdvanceWatermarks() {
  for (auto& loop : source_loops_) {
    if (loop->NoMoreInput()) keeper_.AdvanceSource(loop->stage(), windowing::kMaxTimestamp);
  }
  do {
    keeper_.Recompute();
    for (auto& stage : stages_) {
      const RangeTimes times = commit_->TimesOf(*stage);
      for (auto& range : stage->ranges) range->Advance(times);
      commit_->UpdateBounds(*stage);
    }
  } while (keeper_.Recompute());
}

bool JobCore::IsBehind() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) {
    if (stage->spec->input == InputKind::kGrouped) continue;
    for (const auto& range : stage->ranges) bytes += range->chunks().waiting_bytes();
  }
  return bytes > kPendingBytesMax;
}

// Bodies of waiting elements leave memory, the newest first; they are read back when needed.
void JobCore::MaySpill() {
  const SteadyTime now = environment_.clock->SteadyNow();
  if (now < spill_at_) return;
  size_t resident = 0;
  for (const auto& stage : stages_) {
    for (const auto& range : stage->ranges) resident += range->chunks().resident_bytes();
  }
  if (resident <= kResidentBytesMax) return;
  spill_at_ = now + std::chrono::milliseconds(100);
  size_t want = resident - kResidentBytesMax / 4 * 3;
  for (const auto& stage : stages_) {
    for (const auto& range : stage->ranges) {
      if (want == 0) return;
      StatusOr<size_t> freed = range->chunks().Spill(want, commit_->durable_ordinal());
      if (!freed.ok())
        MR_DIE("engine: the store does not take rows: {}", MessageOf(freed.status()));
      want -= std::min(want, *freed);
    }
  }
}

bool JobCore::IsDone() const {
  if (!keeper_.AllAtMax() || !dispatcher_->Idle()) return false;
  for (const auto& stage : stages_) {
    if (!stage->retry.empty()) return false;
    for (const auto& range : stage->ranges) {
      if (!range->Quiet()) return false;
    }
  }
  const auto finished = [](const auto& loop) { return loop->Finished(); };
  return std::all_of(source_loops_.begin(), source_loops_.end(), finished);
}

std::optional<SteadyTime> JobCore::NextTime() const {
  const SteadyTime now = environment_.clock->SteadyNow();
  std::optional<SteadyTime> next = dispatcher_->NextTime();
  const auto lower = [&next, now](std::optional<SteadyTime> time) {
    if (time && *time > now && (!next || *time < *next)) next = time;
  };
  for (const auto& loop : source_loops_) lower(loop->NextTime());
  for (const auto& loop : sink_loops_) lower(loop->NextTime());
  const int64_t wall = environment_.clock->WallNow().micros;
  for (const auto& stage : stages_) {
    for (const auto& range : stage->ranges) {
      const std::optional<windowing::Millis> time = range->NextProcessingTime(wall / 1000);
      if (time && *time < windowing::kGlobalWindowMax)
        lower(now + Duration(std::max<int64_t>(0, *time * 1000 - wall)));
    }
  }
  return next;
}

void JobCore::SetTimer() {
  const std::optional<SteadyTime> next = NextTime();
  if (!next) return;
  const SteadyTime at =
      std::max(*next, environment_.clock->SteadyNow() + std::chrono::milliseconds(1));
  if (timer_ != 0) {
    if (at >= timer_at_) return;
    environment_.timers->Cancel(timer_);
  }
  timer_at_ = at;
  timer_ = environment_.timers->At(at, *executor_,
                                   [this, executor = executor_, weak = weak_from_this()] {
                                     auto self = weak.lock();
                                     if (!self) return;
                                     timer_ = 0;
                                     Turn();
                                   });
}

}  // namespace millrace::engine
