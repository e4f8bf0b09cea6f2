#include "fnapi/environment_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "fmt/format.h"
#include "fnapi/worker_pool.h"

namespace millrace::fnapi {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(200);
constexpr Duration kRetryMax = std::chrono::seconds(5);

class PoolRunner : public EnvironmentRunner, public std::enable_shared_from_this<PoolRunner> {
 public:
  PoolRunner(EnvironmentOptions options, EnvironmentCallbacks callbacks,
             EnvironmentServices services,
             std::vector<std::shared_ptr<const StageProgram>> programs)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        services_(services),
        pool_(options_.pool_url) {
    auto by_id = std::make_shared<Programs>();
    for (auto& program : programs) {
      by_stage_[program->id.value] = program;
      (*by_id)[program->descriptor.id()] = program;
    }
    programs_ = std::move(by_id);
  }

  void Start() override {
    for (int i = 0; i < options_.workers; ++i) StartWorker();
  }

  int Slots() const override {
    MutexLock lock(mutex_);
    return static_cast<int>(connected_.size()) * options_.bundles_per_worker;
  }

  void OnSlotsChanged(Task changed) override {
    MutexLock lock(mutex_);
    changed_ = std::make_shared<Task>(std::move(changed));
  }

  void Run(engine::BundleRequest request, Callback<void(engine::BundleResult)> done) override {
    std::shared_ptr<Harness> harness;
    {
      MutexLock lock(mutex_);
      auto least =
          std::ranges::min_element(connected_, {}, [](const Connected& c) { return c.in_flight; });
      if (!stopped_ && least != connected_.end()) {
        harness = least->harness;
        ++least->in_flight;
        running_[request.attempt] = harness;
      }
    }
    if (harness == nullptr) {
      engine::BundleResult result;
      result.status = Unavailable("no SDK worker is connected");
      done(std::move(result));
      return;
    }
    const uint64_t attempt = request.attempt;
    auto program = by_stage_.find(request.stage.value);
    MR_CHECK(program != by_stage_.end());
    harness->Run(program->second, std::move(request),
                 [self = shared_from_this(), attempt,
                  done = std::move(done)](engine::BundleResult result) mutable {
                   self->Ended(attempt, result.wants_finalization);
                   done(std::move(result));
                 });
  }

  void Finalize(uint64_t attempt) override {
    std::shared_ptr<Harness> harness;
    {
      MutexLock lock(mutex_);
      auto it = to_finalize_.find(attempt);
      if (it == to_finalize_.end()) return;
      harness = std::move(it->second);
      to_finalize_.erase(it);
    }
    harness->Finalize(attempt);
  }

  void Stop() override {
    std::vector<std::shared_ptr<Harness>> harnesses;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      stopped_ = true;
      for (Connected& connected : connected_) harnesses.push_back(connected.harness);
      for (auto& [id, harness] : starting_) harnesses.push_back(harness);
      connected_.clear();
      starting_.clear();
      to_finalize_.clear();
    }
    for (const std::shared_ptr<Harness>& harness : harnesses) {
      harness->Close(Cancelled("the job has ended"));
      services_.server->Remove(harness->worker_id());
      pool_.Stop(harness->worker_id(), [self = shared_from_this()] {});
    }
  }

 private:
  struct Connected {
    std::shared_ptr<Harness> harness;
    int in_flight = 0;
  };

  void StartWorker() {
    std::shared_ptr<Harness> harness;
    std::string id;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      id = fmt::format("{}-{}", options_.worker_id_prefix, ++last_worker_);
      std::weak_ptr<PoolRunner> weak = shared_from_this();
      harness = std::make_shared<Harness>(
          id, programs_,
          Harness::Listener{.connected =
                                [weak, id] {
                                  if (auto self = weak.lock()) self->OnConnected(id);
                                },
                            .lost =
                                [weak, id] {
                                  if (auto self = weak.lock())
                                    self->OnLost(id, Unavailable("an SDK worker ended"));
                                },
                            .log = callbacks_.log});
      starting_[id] = harness;
    }
    services_.server->Add(harness, options_.provision);
    fn::StartWorkerRequest request;
    request.set_worker_id(id);
    for (auto* endpoint :
         {request.mutable_control_endpoint(), request.mutable_logging_endpoint(),
          request.mutable_artifact_endpoint(), request.mutable_provision_endpoint()}) {
      endpoint->set_url(options_.endpoint);
    }
    request.mutable_params()->insert(options_.params.begin(), options_.params.end());
    pool_.Start(std::move(request), [self = shared_from_this(), id](Status status) {
      if (!status.ok()) {
        self->OnLost(id, status);
      } else {
        self->ExpectConnection(id);
      }
    });
  }

  // A worker that was started but never calls (a dependency is missing, it cannot reach us) counts
  // as lost.
  void ExpectConnection(const std::string& id) {
    services_.timers->At(
        services_.clock->SteadyNow() + options_.connect_timeout, *services_.pool,
        [self = shared_from_this(), id] {
          bool missing = false;
          {
            MutexLock lock(self->mutex_);
            missing = self->starting_.contains(id);
          }
          if (missing) {
            self->OnLost(id, Unavailable(fmt::format(
                                 "SDK worker {} was started and has not connected to {} in time",
                                 id, self->options_.endpoint)));
          }
        });
  }

  void OnConnected(const std::string& id) {
    {
      MutexLock lock(mutex_);
      auto it = starting_.find(id);
      if (it == starting_.end()) return;
      connected_.push_back({std::move(it->second)});
      starting_.erase(it);
      trouble_since_.reset();
      retry_ = kRetryMin;
    }
    SlotsChanged();
  }

  void OnLost(const std::string& id, Status why) {
    std::shared_ptr<Harness> harness;
    Duration trouble{}, delay{};
    bool none_left = false;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      if (auto it = starting_.find(id); it != starting_.end()) {
        harness = std::move(it->second);
        starting_.erase(it);
      }
      for (size_t i = 0; i < connected_.size(); ++i) {
        if (connected_[i].harness->worker_id() != id) continue;
        harness = std::move(connected_[i].harness);
        connected_.erase(connected_.begin() + i);
        break;
      }
      if (harness == nullptr) return;
      std::erase_if(to_finalize_, [&](const auto& entry) { return entry.second == harness; });
      none_left = connected_.empty();
      if (!trouble_since_) trouble_since_ = services_.clock->SteadyNow();
      trouble = services_.clock->SteadyNow() - *trouble_since_;
      delay = retry_;
      retry_ = std::min(retry_ * 2, kRetryMax);
    }
    MR_LOG(kInfo, "worker {}: {}", id, MessageOf(why));
    services_.server->Remove(id);
    harness->Close(why);
    pool_.Stop(id, [self = shared_from_this()] {});
    SlotsChanged();
    if (none_left && callbacks_.unreachable) callbacks_.unreachable(trouble, why);
    services_.timers->At(services_.clock->SteadyNow() + delay, *services_.pool,
                         [self = shared_from_this()] { self->StartWorker(); });
  }

  void Ended(uint64_t attempt, bool wants_finalization) {
    MutexLock lock(mutex_);
    auto it = running_.find(attempt);
    if (it == running_.end()) return;
    for (Connected& connected : connected_) {
      if (connected.harness == it->second) --connected.in_flight;
    }
    if (wants_finalization && !stopped_) to_finalize_[attempt] = it->second;
    running_.erase(it);
  }

  void SlotsChanged() {
    std::shared_ptr<Task> changed;
    {
      MutexLock lock(mutex_);
      changed = changed_;
    }
    if (changed != nullptr) (*changed)();
  }

  const EnvironmentOptions options_;
  const EnvironmentCallbacks callbacks_;
  const EnvironmentServices services_;
  WorkerPool pool_;
  std::shared_ptr<const Programs> programs_;
  std::map<uint32_t, std::shared_ptr<const StageProgram>> by_stage_;

  mutable Mutex mutex_;
  std::vector<Connected> connected_ MR_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Harness>> starting_ MR_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Harness>> running_ MR_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Harness>> to_finalize_ MR_GUARDED_BY(mutex_);
  std::shared_ptr<Task> changed_ MR_GUARDED_BY(mutex_);
  std::optional<SteadyTime> trouble_since_ MR_GUARDED_BY(mutex_);
  Duration retry_ MR_GUARDED_BY(mutex_) = kRetryMin;
  uint64_t last_worker_ MR_GUARDED_BY(mutex_) = 0;
  bool stopped_ MR_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<EnvironmentRunner> EnvironmentRunner::Make(
    EnvironmentOptions options, EnvironmentCallbacks callbacks, EnvironmentServices services,
    std::vector<std::shared_ptr<const StageProgram>> programs) {
  return std::make_shared<PoolRunner>(std::move(options), std::move(callbacks), services,
                                      std::move(programs));
}

}  // namespace millrace::fnapi
