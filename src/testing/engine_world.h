// A job with everything around it, in virtual time, that can crash and come back.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "engine/job.h"
#include "storage/memory_log.h"
#include "storage/memory_store.h"
#include "storage/open.h"
#include "testing/engine_fakes.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"
#include "testing/manual_timers.h"

namespace millrace::testing {

// Single-threaded.
class EngineWorld {
 public:
  explicit EngineWorld(engine::Plan plan, engine::JobOptions options = {})
      : options(options),
        plan_(std::make_shared<const engine::Plan>(std::move(plan))),
        contents_(storage::MakeMemoryLogContents()) {
    auto store = std::make_unique<storage::MemoryStore>(/*keep_flushed=*/true);
    memory_store_ = store.get();
    store_ = std::move(store);
  }

  // A new life: recovers what is durable and starts.
  void Start() {
    executor = new ManualExecutor;  // kept for ever: what a dead life left in its queue never runs
    Graveyard().emplace_back(executor);
    timers = std::make_shared<ManualTimers>(clock);
    TimersGraveyard().push_back(timers);
    storage_ = std::make_unique<storage::Storage>();
    storage_->log = storage::MakeMemoryLog(executor, contents_);
    storage_->store = std::move(store_);
    storage::Checkpointer::Options checkpoint;
    checkpoint.log_bytes = checkpoint_bytes;
    checkpoint.executor = executor;
    storage_->checkpointer =
        std::make_unique<storage::Checkpointer>(*storage_->log, *storage_->store, checkpoint);
    runner = std::make_shared<FakeRunner>();
    if (setup) setup(*runner);
    listener = std::make_shared<FakeListener>();
    engine::JobEnvironment environment;
    environment.storage = storage_.get();
    environment.clock = &clock;
    environment.timers = timers.get();
    environment.pool = executor;
    environment.runners["env"] = runner;
    environment.listener = listener;
    environment.sources["fake"] = [this](const std::string&, const std::string&,
                                         std::function<void(Status)>) {
      auto made = std::make_unique<FakeSource>(topic, *executor);
      source = made.get();
      return StatusOr<std::unique_ptr<engine::Source>>(std::move(made));
    };
    environment.sinks["fake"] = [this](const std::string&, const std::string&,
                                       std::function<void(Status)>) {
      auto made = std::make_unique<FakeSink>(output, *executor);
      sink = made.get();
      return StatusOr<std::unique_ptr<engine::Sink>>(std::move(made));
    };
    StatusOr<std::shared_ptr<engine::Job>> made =
        engine::Job::Make({7}, "job", plan_, options, environment);
    MR_CHECK(made.ok());
    job = *made;
    if (lives++ > 0) Recover();
    job->Start();
  }

  // The process dies: what is not durable is gone.
  void Crash() {
    job.reset();
    runner.reset();
    source = nullptr;
    sink = nullptr;
    store_ = std::move(storage_->store);
    storage_->checkpointer.reset();
    storage_->log.reset();
    storage_.reset();
    memory_store_->RevertToFlushed();
  }

  // Until nothing moves: bundles are answered at once, timers fire as the clock stands.
  void Settle() {
    while (true) {
      FakeSource::AnswerAll();
      if (executor->RunAll() > 0) continue;
      if (runner->RunOne()) continue;
      if (timers->RunDue() > 0) continue;
      return;
    }
  }
  // Settles, and lets time go on by small steps.
  void RunFor(Duration time, Duration step = std::chrono::milliseconds(10)) {
    Settle();
    for (Duration done{}; done < time; done += step) {
      clock.Advance(step);
      Settle();
    }
  }

  void Checkpoint() {
    storage_->checkpointer->Run([](Status) {});
  }
  storage::Storage& storage() { return *storage_; }

  engine::JobOptions options;
  uint64_t checkpoint_bytes = 1 << 30;
  std::function<void(FakeRunner&)> setup;
  FakeClock clock;
  FakeTopic topic;
  FakeOutput output;
  ManualExecutor* executor = nullptr;
  std::shared_ptr<ManualTimers> timers;
  std::shared_ptr<FakeRunner> runner;
  std::shared_ptr<FakeListener> listener;
  std::shared_ptr<engine::Job> job;
  FakeSource* source = nullptr;
  FakeSink* sink = nullptr;
  int lives = 0;

 private:
  static std::vector<std::unique_ptr<ManualExecutor>>& Graveyard() {
    static auto* graves = new std::vector<std::unique_ptr<ManualExecutor>>;
    return *graves;
  }
  static std::vector<std::shared_ptr<ManualTimers>>& TimersGraveyard() {
    static auto* graves = new std::vector<std::shared_ptr<ManualTimers>>;
    return *graves;
  }

  void Recover() {
    MR_CHECK(job->LoadView().ok());
    StatusOr<storage::Lsn> from = storage::Checkpointer::ReplayPosition(*storage_->store);
    MR_CHECK(from.ok());
    const Status replayed =
        storage_->log->Replay(*from, [this](storage::Lsn, const storage::Record& record) {
          return engine::Job::OwnerOf(record.shard) == engine::JobUid{7} ? job->Replay(record)
                                                                         : OkStatus();
        });
    if (!replayed.ok()) MR_DIE("replay: {}", MessageOf(replayed));
  }

  const std::shared_ptr<const engine::Plan> plan_;
  const std::shared_ptr<storage::MemoryLogContents> contents_;
  storage::MemoryStore* memory_store_ = nullptr;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<storage::Storage> storage_;
};

// ---- Plans. Stage ids are positions.

inline engine::CollectionSpec FakeCollection(
    std::string name, bool keyed = false,
    windowing::WindowKind kind = windowing::WindowKind::kGlobal) {
  engine::CollectionSpec spec;
  spec.name = std::move(name);
  spec.keyed = keyed;
  spec.window_kind = kind;
  return spec;
}

inline windowing::Strategy FixedWindows(windowing::Millis size, windowing::Millis lateness = 0) {
  windowing::Strategy strategy;
  strategy.window_fn.kind = windowing::WindowFnKind::kFixed;
  strategy.window_fn.size = size;
  strategy.window_kind = windowing::WindowKind::kInterval;
  strategy.allowed_lateness = lateness;
  return strategy;
}

inline engine::StageSpec FakeStage(std::string name, engine::InputKind input, engine::Work work,
                                   std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
  engine::StageSpec spec;
  spec.name = std::move(name);
  spec.input = input;
  spec.work = work;
  spec.environment = "env";
  spec.native_kind = "fake";
  for (uint32_t id : inputs) spec.inputs.push_back({id});
  for (uint32_t id : outputs) spec.outputs.push_back({id});
  if (input == engine::InputKind::kImpulse)
    spec.impulse = EncodeElement({windowing::kMinTimestamp}, false);
  return spec;
}

// Source (parsed to KV in fixed windows) → group → count → sink. Counting emits "key@start=n".
inline engine::Plan CountingPlan(windowing::Millis window, windowing::Millis lateness = 0) {
  engine::Plan plan;
  plan.unbounded = true;
  plan.collections = {FakeCollection("kv", true, windowing::WindowKind::kInterval),
                      FakeCollection("counts", false, windowing::WindowKind::kInterval)};
  plan.stages = {FakeStage("read", engine::InputKind::kSource, engine::Work::kBundle, {}, {0}),
                 FakeStage("count", engine::InputKind::kGrouped, engine::Work::kBundle, {0}, {1}),
                 FakeStage("write", engine::InputKind::kElements, engine::Work::kSink, {1}, {})};
  plan.stages[1].strategy = FixedWindows(window, lateness);
  plan.stages[2].strategy = plan.stages[1].strategy;
  return plan;
}

inline void SetCountingFunctions(FakeRunner& runner, windowing::Millis window) {
  runner.Set({0}, [window](const engine::BundleRequest& request) {
    std::vector<FakeElement> out;
    for (FakeElement& element :
         DecodeElements(request.data, FakeCoder::kBytes, windowing::WindowKind::kGlobal)) {
      const windowing::Millis start =
          element.timestamp - ((element.timestamp % window) + window) % window;
      FakeElement kv;
      kv.timestamp = element.timestamp;
      kv.windows = {windowing::Window::Interval(start, start + window)};
      kv.key = element.value;
      kv.value = "1";
      out.push_back(std::move(kv));
    }
    engine::BundleResult result;
    result.outputs.push_back(MakeChunk({0}, out, true));
    return result;
  });
  runner.Set({1}, [](const engine::BundleRequest& request) {
    std::vector<FakeElement> out;
    for (FakeElement& element :
         DecodeElements(request.data, FakeCoder::kGrouped, windowing::WindowKind::kInterval)) {
      FakeElement count = element;
      count.value = element.key + "@" + std::to_string(element.windows[0].start) + "=" +
                    std::to_string(element.values.size());
      out.push_back(std::move(count));
    }
    engine::BundleResult result;
    result.outputs.push_back(MakeChunk({1}, out, false));
    return result;
  });
}

}  // namespace millrace::testing
