// Cuts bundles when slots are free, runs them, and turns answers into commits or retries.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/bundle_commit.h"
#include "engine/messages.h"
#include "engine/stage.h"

namespace millrace::engine {

// Guarantee: a bundle's input is locked from its cut to its commit; an attempt number is one run;
// only the first answer to a running attempt counts. Single-threaded; owned by the job.
class Dispatcher {
 public:
  struct Parts {
    const Plan* plan = nullptr;
    const JobOptions* options = nullptr;
    std::vector<std::unique_ptr<StageState>>* stages = nullptr;
    std::map<std::string, std::shared_ptr<BundleRunner>>* runners = nullptr;
    BundleCommit* commit = nullptr;
    ProgressKeeper* keeper = nullptr;
    MetricTable* committed = nullptr;
    MetricTable* failed = nullptr;
    Messages* messages = nullptr;
    const Clock* clock = nullptr;
    Faults faults;
    // Wraps what to do with an answer, so that it runs on the job's executor; dropped when the job
    // is gone.
    std::function<Callback<void(BundleResult)>(uint64_t attempt)> on_result;
    // A bundle's state, made for each run of a stage that has any; and what it changed, told to
    // OnState on the job's executor.
    std::function<std::shared_ptr<StateOverlay>(const StageState&, uint64_t attempt)> make_state;
    std::function<void(std::shared_ptr<StateOverlay>, uint64_t attempt, BundleResult)> close_state;
    // Source elements are in a durable commit.
    std::function<void(StageState&, RangeShard&, uint64_t run, std::vector<uint64_t> handles,
                       size_t elements)>
        ack;
    std::function<void(Status)> fail;  // the job has failed
    std::function<void()> changed;     // commits were made
  };
  explicit Dispatcher(Parts parts);

  // Attempts of this life of the job are above `floor`.
  void SetAttemptFloor(uint64_t floor) { last_attempt_ = floor; }

  // Runs what can run now.
  void Pump();
  void OnResult(uint64_t attempt, BundleResult result);
  void OnState(uint64_t attempt, BundleResult result, StatusOr<storage::WriteBatch> changes);
  // When Pump should be called although nothing happened.
  std::optional<SteadyTime> NextTime() const;
  bool Idle() const { return running_.empty(); }
  // Some stage backs off: sources should stop pulling.
  bool BacksOff() const;
  // Forgets running bundles: their answers no longer count. Gives back the items of everything that
  // runs or waits to run again.
  std::vector<std::unique_ptr<Bundle>> Abandon();

 private:
  bool RunOneOf(const std::vector<StageState*>& stages);
  bool MayCut(StageState& stage, SteadyTime now);
  std::unique_ptr<Bundle> Cut(StageState& stage);
  void Launch(StageState& stage, std::unique_ptr<Bundle> bundle);
  void RunPass(StageState& stage, std::unique_ptr<Bundle> bundle);
  void PumpPasses();
  void OnFailure(StageState& stage, std::unique_ptr<Bundle> bundle, const BundleResult& result);
  void Answered(uint64_t attempt, BundleResult result, std::string state);
  void Finish(StageState& stage, std::unique_ptr<Bundle> bundle, BundleResult result,
              std::vector<PackedChunk> outputs, std::string state);
  void PutBackRest(std::vector<Item> rest, std::vector<Item>& kept);
  std::vector<RangeRecord> MakeRecords(StageState& stage, Bundle& bundle, BundleResult& result);
  Task MakeEffects(StageState& stage, std::vector<Item> items,
                   const std::vector<RangeRecord>& records, uint64_t attempt, bool finalize);

  Parts parts_;
  std::map<std::string, std::vector<StageState*>> by_environment_;  // consumers before producers
  std::map<std::string, int> in_flight_;
  std::vector<StageState*> passes_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Bundle>> running_;
  std::set<std::string> counted_;  // collections that the engine counts
  uint64_t last_attempt_ = 0;
};

}  // namespace millrace::engine
