#include "jobs/job_run.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"
#include "connectors/pubsub/pubsub_sink.h"
#include "connectors/pubsub/pubsub_source.h"
#include "fmt/format.h"
#include "jobs/environments.h"
#include "jobs/metrics.h"

namespace millrace::jobs {
namespace {

// How long a job bears that its workers cannot be reached (DESIGN 5).
constexpr Duration kLoopbackPatience = std::chrono::seconds(30);
constexpr Duration kBoundedPatience = std::chrono::minutes(5);
constexpr Duration kTellEvery = std::chrono::minutes(1);

// The subscription that a job makes on a topic it reads. The same after a restart.
std::string OwnSubscription(const std::string& topic, const std::string& job_id) {
  const size_t project_end = topic.find("/topics/");
  return fmt::format("{}/subscriptions/{}.{}", topic.substr(0, project_end), job_id,
                     topic.substr(project_end + 8));
}

fnapi::StageProgram ToProgram(const planner::ExecutableStage& stage, const std::string& endpoint) {
  auto port = [](const planner::Port& from) {
    return fnapi::PortProgram{from.transform, from.collection, from.windowed_coder, from.keyed};
  };
  fnapi::StageProgram program;
  program.id = stage.id;
  program.descriptor = stage.descriptor;
  program.source = port(stage.source);
  for (const planner::Port& sink : stage.sinks) program.sinks.push_back(port(sink));
  for (const planner::TimerPort& timer : stage.timers) {
    program.timers.push_back({timer.transform, timer.family, timer.coder});
  }
  program.uses_state = stage.uses_state;
  fnapi::SetEndpoints(program, endpoint);
  return program;
}

Status CheckNative(const engine::StageSpec& stage) {
  if (stage.native_kind == planner::kPubSubRead) {
    return connectors::pubsub::ParseReadSettings(stage.native_spec).status();
  }
  return connectors::pubsub::ParseWriteSettings(stage.native_spec,
                                                stage.native_kind == planner::kPubSubWriteDynamic)
      .status();
}

}  // namespace

StatusOr<planner::PlannedPipeline> PlanJob(const pipe::Pipeline& pipeline,
                                           const JobServices& services) {
  MR_ASSIGN_OR_RETURN(planner::PlannedPipeline planned, planner::PlanPipeline(pipeline));
  for (const auto& [id, environment] : planned.environments)
    MR_RETURN_IF_ERROR(PoolOf(environment).status());
  for (const engine::StageSpec& stage : planned.plan->stages) {
    if (stage.native_kind.empty()) continue;
    if (services.broker == nullptr) {
      return FailedPrecondition(
          fmt::format("transform {} uses Pub/Sub, and this server runs without the role pubsub; "
                      "start it with --roles=pubsub,dataflow",
                      stage.name));
    }
    MR_RETURN_IF_ERROR(CheckNative(stage));
  }
  return planned;
}

StatusOr<std::shared_ptr<JobRun>> JobRun::Make(JobRow row, pipe::Pipeline pipeline,
                                               JobServices services,
                                               std::function<void(JobRow)> ended) {
  MR_ASSIGN_OR_RETURN(planner::PlannedPipeline planned, PlanJob(pipeline, services));
  std::shared_ptr<JobRun> run(
      new JobRun(std::move(row), std::move(pipeline), std::move(services), std::move(ended)));
  MR_RETURN_IF_ERROR(run->Build(std::move(planned)));
  return run;
}

JobRun::JobRun(JobRow row, pipe::Pipeline pipeline, JobServices services,
               std::function<void(JobRow)> ended)
    : row_(std::move(row)),
      pipeline_(std::move(pipeline)),
      services_(std::move(services)),
      ended_(std::move(ended)) {}

Status JobRun::Build(planner::PlannedPipeline planned) {
  planned_ = std::move(planned);
  google::protobuf::Struct options;
  options.ParseFromString(row_.options);
  MR_ASSIGN_OR_RETURN(options_, ReadOptions(options, row_.name));
  engine::JobEnvironment environment;
  environment.storage = services_.storage;
  environment.clock = services_.clock;
  environment.timers = services_.timers;
  environment.pool = services_.pool;
  for (const auto& [id, proto] : planned_.environments) {
    MR_ASSIGN_OR_RETURN(auto runner, MakeEnvironment(id));
    environments_.push_back(runner);
    environment.runners[id] = std::move(runner);
  }
  environment.sources[planner::kPubSubRead] = MakeSourceFactory();
  environment.sinks[planner::kPubSubWrite] = MakeSinkFactory(false);
  environment.sinks[planner::kPubSubWriteDynamic] = MakeSinkFactory(true);
  environment.listener = shared_from_this();
  engine::JobOptions engine_options;
  engine_options.bounded_attempts = options_.bundle_attempts;
  MR_ASSIGN_OR_RETURN(engine_, engine::Job::Make(engine::JobUid{row_.uid}, row_.id, planned_.plan,
                                                 engine_options, std::move(environment)));
  return OkStatus();
}

StatusOr<std::shared_ptr<fnapi::EnvironmentRunner>> JobRun::MakeEnvironment(const std::string& id) {
  const pipe::Environment& proto = planned_.environments.at(id);
  MR_ASSIGN_OR_RETURN(PoolAddress pool, PoolOf(proto));
  fnapi::EnvironmentOptions options;
  options.pool_url = pool.url;
  options.params = pool.params;
  options.worker_id_prefix =
      fmt::format("{}-{}-{}", row_.id, services_.boot_id, environments_.size());
  options.workers = options_.workers;
  options.endpoint = services_.endpoint;
  options.provision.mutable_pipeline_options()->ParseFromString(row_.options);
  options.provision.set_retrieval_token(row_.id);
  *options.provision.mutable_dependencies() = proto.dependencies();
  for (auto* endpoint :
       {options.provision.mutable_control_endpoint(), options.provision.mutable_logging_endpoint(),
        options.provision.mutable_artifact_endpoint()}) {
    endpoint->set_url(services_.endpoint);
  }
  std::vector<std::shared_ptr<const fnapi::StageProgram>> programs;
  for (const planner::ExecutableStage& stage : planned_.stages) {
    if (stage.environment != id) continue;
    programs.push_back(std::make_shared<fnapi::StageProgram>(ToProgram(stage, services_.endpoint)));
  }
  std::weak_ptr<JobRun> weak = shared_from_this();
  fnapi::EnvironmentCallbacks callbacks;
  callbacks.unreachable = [weak, executor = services_.executor](Duration trouble, Status why) {
    executor->Post([weak, trouble, why] {
      if (auto self = weak.lock()) self->Unreachable(trouble, why);
    });
  };
  callbacks.log = [job = row_.id](const fnapi::fn::LogEntry& entry) {
    const bool error = entry.severity() >= fnapi::fn::LogEntry::Severity::ERROR;
    if (error) {
      MR_LOG(kWarning, "job {}: worker says: {}", job, entry.message());
    } else {
      MR_LOG(kDebug, "job {}: worker says: {}", job, entry.message());
    }
  };
  return fnapi::EnvironmentRunner::Make(
      std::move(options), std::move(callbacks),
      {services_.fn_server, services_.clock, services_.timers, services_.pool},
      std::move(programs));
}

engine::SourceFactory JobRun::MakeSourceFactory() const {
  return [services = services_, band = options_.timestamp_band](
             const std::string& spec, const std::string& job,
             std::function<void(Status)> report) -> StatusOr<std::unique_ptr<engine::Source>> {
    MR_ASSIGN_OR_RETURN(connectors::pubsub::ReadSettings settings,
                        connectors::pubsub::ParseReadSettings(spec));
    settings.band = band;
    std::string own = settings.topic.empty() ? "" : OwnSubscription(settings.topic, job);
    return connectors::pubsub::MakePubSubSource(
        std::move(settings), std::move(own),
        {services.broker, services.clock, services.timers, services.pool}, std::move(report));
  };
}

engine::SinkFactory JobRun::MakeSinkFactory(bool dynamic) const {
  return [broker = services_.broker, dynamic](
             const std::string& spec, const std::string& job,
             std::function<void(Status)> report) -> StatusOr<std::unique_ptr<engine::Sink>> {
    MR_ASSIGN_OR_RETURN(connectors::pubsub::WriteSettings settings,
                        connectors::pubsub::ParseWriteSettings(spec, dynamic));
    return connectors::pubsub::MakePubSubSink(std::move(settings), broker, std::move(report));
  };
}

void JobRun::Start() {
  events_->AddState(api::JobState::STOPPED, row_.created);
  events_->AddState(api::JobState::STARTING, row_.created);
  events_->AddState(row_.drain ? api::JobState::DRAINING : api::JobState::RUNNING,
                    services_.clock->WallNow());
  for (const auto& environment : environments_) environment->Start();
  engine_->Start();
  if (row_.drain) engine_->Drain();
}

void JobRun::Cancel() {
  if (finished_ || cancelled_) return;
  cancelled_ = true;
  events_->AddState(api::JobState::CANCELLING, services_.clock->WallNow());
  engine_->Cancel();
}

void JobRun::Drain() {
  if (finished_ || cancelled_ || row_.drain) return;
  row_.drain = true;
  events_->AddState(api::JobState::DRAINING, services_.clock->WallNow());
  engine_->Drain();
}

void JobRun::Suspend() {
  if (engine_ != nullptr) engine_->Suspend();
  for (const auto& environment : environments_) environment->Stop();
  events_->Close();
}

void JobRun::Metrics(Callback<void(api::MetricResults)> done) {
  if (engine_ == nullptr || !row_.metrics.empty()) {
    api::MetricResults results;
    results.ParseFromString(row_.metrics);
    done(std::move(results));
    return;
  }
  engine_->Metrics(
      [self = shared_from_this(), done = std::move(done)](
          std::vector<engine::Metric> attempted, std::vector<engine::Metric> committed) mutable {
        done(ToMetricResults(attempted, committed, self->planned_));
      });
}

void JobRun::OnFinished(Status status) {
  services_.executor->Post(
      [self = shared_from_this(), status = std::move(status)] { self->Finished(status); });
}

void JobRun::OnMessage(engine::Importance importance, std::string text) {
  if (importance >= engine::Importance::kWarning) MR_LOG(kWarning, "job {}: {}", row_.id, text);
  events_->AddMessage(importance, text, services_.clock->WallNow());
}

void JobRun::Unreachable(Duration trouble, const Status& why) {
  if (finished_) return;
  const auto seconds = trouble / std::chrono::seconds(1);
  const bool loopback = options_.environment_type == "LOOPBACK";
  const bool bounded = !planned_.plan->unbounded;
  if ((loopback && trouble >= kLoopbackPatience) || (bounded && trouble >= kBoundedPatience)) {
    Fail(Unavailable(
        fmt::format("no SDK worker could be reached for {} s: {}", seconds, MessageOf(why))));
    return;
  }
  const SteadyTime now = services_.clock->SteadyNow();
  if (now - told_unreachable_ < kTellEvery) return;
  told_unreachable_ = now;
  OnMessage(engine::Importance::kWarning,
            fmt::format("waiting for an SDK worker: {}", MessageOf(why)));
}

void JobRun::Fail(Status why) {
  if (finished_ || !failure_.ok()) return;
  failure_ = std::move(why);
  engine_->Cancel();
}

void JobRun::Finished(Status status) {
  if (std::exchange(finished_, true)) return;
  State state = row_.drain ? api::JobState::DRAINED : api::JobState::DONE;
  std::string error;
  if (!failure_.ok()) {
    state = api::JobState::FAILED;
    error = MessageOf(failure_);
  } else if (cancelled_) {
    state = api::JobState::CANCELLED;
  } else if (!status.ok()) {
    state = api::JobState::FAILED;
    error = MessageOf(status);
  }
  engine_->Metrics([self = shared_from_this(), state, error](
                       std::vector<engine::Metric> attempted,
                       std::vector<engine::Metric> committed) {
    api::MetricResults metrics = ToMetricResults(attempted, committed, self->planned_);
    self->services_.executor->Post([self, state, error, metrics = std::move(metrics)]() mutable {
      self->End(state, error, std::move(metrics));
    });
  });
}

void JobRun::End(State state, std::string error, api::MetricResults metrics) {
  row_.state = state;
  row_.error = std::move(error);
  row_.metrics = metrics.SerializeAsString();
  row_.changed = services_.clock->WallNow();
  ended_(row_);
}

void JobRun::Ended() {
  if (!row_.error.empty()) {
    events_->AddMessage(engine::Importance::kError, row_.error, row_.changed);
    MR_LOG(kWarning, "job {} failed: {}", row_.id, row_.error);
  }
  events_->AddState(row_.state, row_.changed);
  events_->Close();
  for (const auto& environment : environments_) environment->Stop();
  environments_.clear();
  engine_.reset();  // it told its end and answered Metrics since: nothing of it is running
  DeleteOwnSubscriptions();
  Purge(services_, row_.uid);
}

void JobRun::Purge(const JobServices& services, uint64_t uid) {
  Status purged = engine::Job::Purge(*services.storage, engine::JobUid{uid});
  if (!purged.ok())
    MR_LOG(kWarning, "job {}: its data could not be removed: {}", uid, MessageOf(purged));
}

void JobRun::DeleteOwnSubscriptions() {
  std::set<std::string> names;
  for (const engine::StageSpec& stage : planned_.plan->stages) {
    if (stage.native_kind != planner::kPubSubRead) continue;
    StatusOr<connectors::pubsub::ReadSettings> settings =
        connectors::pubsub::ParseReadSettings(stage.native_spec);
    if (settings.ok() && !settings->topic.empty())
      names.insert(OwnSubscription(settings->topic, row_.id));
  }
  for (const std::string& name : names) {
    services_.broker->DeleteSubscription(name, [name](Status status) {
      if (!status.ok() && status.code() != StatusCode::kNotFound) {
        MR_LOG(kWarning, "subscription {} of an ended job stays: {}", name, MessageOf(status));
      }
    });
  }
}

}  // namespace millrace::jobs
