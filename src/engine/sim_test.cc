// A whole job over doubles, with crashes between any two steps, failing bundles, dying workers,
// lost acks and duplicates, against a model. MR_SEED=n runs one seed; MR_SEEDS=n that many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "testing/engine_world.h"

namespace millrace::engine {
namespace {

using testing::CountingPlan;
using testing::EngineWorld;
using testing::FakeRunner;
using testing::SetCountingFunctions;

constexpr windowing::Millis kWindow = 1000;

class Simulation {
 public:
  Simulation(uint64_t seed, Faults faults)
      : random_(seed), world_(CountingPlan(kWindow), OptionsOf(faults)) {
    world_.setup = [this](FakeRunner& runner) {
      SetCountingFunctions(runner, kWindow);
      runner.SetSlots(1 + static_cast<int>(random_() % 3));
    };
  }

  // True if the outcome is the model's.
  bool Run(std::string* why) {
    world_.Start();
    const int steps = 300 + static_cast<int>(random_() % 600);
    for (int i = 0; i < steps; ++i) Step();
    failing_ = false;
    world_.topic.lose_acks = false;
    for (int i = 0; i < 30 && Chance(70); ++i) Step();
    Revive();  // a new life asks for what was never acked
    world_.job->Drain();
    for (int i = 0; i < 600 && !world_.listener->finished; ++i) {
      world_.RunFor(std::chrono::seconds(1), std::chrono::milliseconds(250));
    }
    NoteAttempts();
    return Judge(why);
  }

 private:
  static JobOptions OptionsOf(Faults faults) {
    JobOptions options;
    options.faults = faults;
    options.bundle_elements_max = 7;
    return options;
  }
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  void Publish() {
    time_ += static_cast<windowing::Millis>(random_() % 60);
    world_.topic.watermark_limit = time_;
    const std::string id = std::to_string(next_id_++);
    const std::string key(1, static_cast<char>('a' + random_() % 4));
    const windowing::Millis timestamp = time_ + static_cast<windowing::Millis>(random_() % 400);
    world_.topic.Publish(id, key, timestamp);
    const windowing::Millis start = timestamp / kWindow * kWindow;
    ++model_[key + "@" + std::to_string(start)];
    if (Chance(20)) world_.topic.Publish(id, key, timestamp);
  }

  void Step() {
    const int what = static_cast<int>(random_() % 100);
    if (what < 12) {
      Publish();
      if (Chance(70)) testing::FakeSource::AnswerAll();
    } else if (what < 70) {
      world_.executor->RunOne();
    } else if (what < 88) {
      Answer();
    } else if (what < 96) {
      world_.clock.Advance(std::chrono::milliseconds(random_() % 300));
      world_.timers->RunDue();
    } else if (what < 97) {
      world_.Checkpoint();
    } else if (what < 98) {
      world_.topic.lose_acks = failing_ && Chance(30);
      failing_ = Chance(50);
    } else if (Chance(60)) {
      Revive();
    }
  }

  void Answer() {
    if (world_.runner->waiting() == 0) return;
    const size_t which = random_() % world_.runner->waiting();
    if (failing_ && Chance(30)) {
      BundleResult result;
      result.status = Chance(50) ? Internal("a bad element") : Unavailable("the worker died");
      world_.runner->Answer(which, std::move(result));
      return;
    }
    world_.runner->RunOne(which);
  }

  void Revive() {
    NoteAttempts();
    world_.Crash();
    world_.Start();
  }

  void NoteAttempts() {
    for (uint64_t attempt : world_.runner->attempts)
      attempts_unique_ &= attempts_.insert(attempt).second;
    world_.runner->attempts.clear();
  }

  bool Judge(std::string* why) {
    std::multiset<std::string> expected;
    for (const auto& [cell, count] : model_) expected.insert(cell + "=" + std::to_string(count));
    if (!world_.listener->finished) {
      *why = "the job does not end";
    } else if (!world_.listener->finished->ok()) {
      *why = std::string(MessageOf(*world_.listener->finished));
    } else if (world_.output.values() != expected) {
      *why = "wrong counts:";
      for (const std::string& value : expected) {
        if (!world_.output.values().contains(value)) *why += " -" + value;
      }
      for (const std::string& value : world_.output.values()) {
        if (!expected.contains(value)) *why += " +" + value;
      }
    } else if (world_.output.changed > 0) {
      *why = "a write was repeated with other contents";
    } else if (world_.topic.unacked() > 0) {
      *why = "messages are left unacked";
    } else if (!attempts_unique_) {
      *why = "an attempt number was used twice";
    } else {
      return true;
    }
    return false;
  }

  std::mt19937_64 random_;
  EngineWorld world_;
  std::map<std::string, int> model_;
  std::set<uint64_t> attempts_;
  bool attempts_unique_ = true, failing_ = true;
  windowing::Millis time_ = 10'000;
  int next_id_ = 0;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(SimTest, CountsAreExactWhateverHappens) {
  const uint64_t first = FromEnvironment("MR_SEED", 1);
  const uint64_t count = std::getenv("MR_SEED") != nullptr ? 1 : FromEnvironment("MR_SEEDS", 60);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::string why;
    ASSERT_TRUE(Simulation(seed, {}).Run(&why)) << "seed " << seed << ": " << why;
  }
}

// Some seed must notice each planted bug.
void ExpectCaught(Faults faults, const char* what) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::string why;
    if (!Simulation(seed, faults).Run(&why)) return;
  }
  ADD_FAILURE() << "no seed of 200 noticed: " << what;
}

TEST(SimTest, CatchesAckBeforeCommit) {
  Faults faults;
  faults.ack_before_commit = true;
  ExpectCaught(faults, "ack before commit");
}

TEST(SimTest, CatchesOutputsLostOnReplay) {
  Faults faults;
  faults.lose_outputs_on_replay = true;
  ExpectCaught(faults, "outputs lost on replay");
}

TEST(SimTest, CatchesForgottenIds) {
  Faults faults;
  faults.forget_ids = true;
  ExpectCaught(faults, "ids forgotten");
}

TEST(SimTest, CatchesReusedAttempts) {
  Faults faults;
  faults.reuse_attempts = true;
  ExpectCaught(faults, "attempts reused");
}

}  // namespace
}  // namespace millrace::engine
