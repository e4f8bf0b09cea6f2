#include "storage/checkpoint.h"

#include <condition_variable>
#include <deque>
#include <utility>
#include <vector>

#include "base/fault_points.h"
#include "base/log.h"
#include "storage/encoding.h"

namespace millrace::storage {
namespace {

constexpr std::string_view kReplayPositionKey = "replay_position";

}  // namespace

// Shared by the object, the answers on their way and the blocking work.
struct Checkpointer::State : std::enable_shared_from_this<Checkpointer::State> {
  // One run. Alive until its last answer is written.
  struct Round {
    Lsn start = 0;
    std::vector<std::shared_ptr<Checkpointed>> asked;
    std::vector<Callback<void(Status)>> done;
    size_t unanswered = 0;
    Status outcome;
  };

  // Stands for the answer of one shard; if it is destroyed unanswered, the shard counts as lost.
  struct Answer {
    std::shared_ptr<State> state;
    std::shared_ptr<Round> round;
    bool given = false;
    ~Answer() {
      if (given) return;
      State& s = *state;
      s.Post([state = std::move(state), round = std::move(round)] {
        state->Finish(round, Cancelled("checkpoint: a shard ended without answering"));
      });
    }
  };

  State(CommitLog& log_in, Store& store_in, Options options_in)
      : log(log_in), store(store_in), options(options_in) {
    if (options.executor == nullptr) thread = std::make_unique<ThreadPool>(1, "checkpoint");
  }

  void Post(Task task) {
    if (thread) {
      thread->Post(std::move(task));
    } else {
      options.executor->Post(std::move(task));
    }
  }

  void Begin(Callback<void(Status)> done);
  void Ask(const std::shared_ptr<Round>& round);
  void Written(const std::shared_ptr<Round>& round, WriteBatch batch);
  void Finish(const std::shared_ptr<Round>& round, Status status);
  Status Seal(const Round& round);

  CommitLog& log;
  Store& store;
  const Options options;
  std::unique_ptr<ThreadPool> thread;

  Mutex mutex;
  std::set<std::shared_ptr<Checkpointed>> dirty MR_GUARDED_BY(mutex);
  // Asked by the last round.
  std::set<std::shared_ptr<Checkpointed>> recent MR_GUARDED_BY(mutex);
  std::shared_ptr<Round> running MR_GUARDED_BY(mutex);
  std::vector<Callback<void(Status)>> waiting
      MR_GUARDED_BY(mutex);  // for the round after the running one
  Lsn last_start MR_GUARDED_BY(mutex) = 0;
};

// A round at a time: a call during one is served by the next.
void Checkpointer::State::Begin(Callback<void(Status)> done) {
  auto round = std::make_shared<Round>();
  {
    MutexLock lock(mutex);
    if (running) {
      waiting.push_back(std::move(done));
      return;
    }
    running = round;
    round->done.push_back(std::move(done));
  }
  // Behind a barrier, so that everything called back by now lies before the position.
  log.Append(
      {}, [self = shared_from_this(), round] { self->Post([self, round] { self->Ask(round); }); });
}

void Checkpointer::State::Ask(const std::shared_ptr<Round>& round) {
  // The position is taken before the set of dirty shards: a shard that becomes dirty in between is
  // asked needlessly, never missed.
  round->start = log.Stats().durable_end;
  {
    MutexLock lock(mutex);
    last_start = round->start;
    // Those of the last round too: one may have answered before it applied what made it dirty.
    recent.insert(dirty.begin(), dirty.end());
    round->asked.assign(recent.begin(), recent.end());
    recent = std::move(dirty);
    dirty.clear();
  }
  round->unanswered = round->asked.size() + 1;  // one more for the asking itself
  auto self = shared_from_this();
  for (const auto& shard : round->asked) {
    auto answer = std::make_shared<Answer>(self, round);
    shard->WriteCheckpoint([answer = std::move(answer)](WriteBatch batch) {
      if (answer->given) return;
      answer->given = true;
      State& state = *answer->state;
      // What the answer holds must be durable in the log before the store may keep it.
      state.log.Append({}, [self = answer->state, round = answer->round,
                            batch = std::move(batch)]() mutable {
        State& s = *self;
        s.Post([self = std::move(self), round = std::move(round),
                batch = std::move(batch)]() mutable { self->Written(round, std::move(batch)); });
      });
    });
  }
  Finish(round, OkStatus());
}

void Checkpointer::State::Written(const std::shared_ptr<Round>& round, WriteBatch batch) {
  Finish(round, batch.empty() ? OkStatus() : store.Write(batch));
}

// Runs on the blocking thread only, so a round's counters need no lock.
void Checkpointer::State::Finish(const std::shared_ptr<Round>& round, Status status) {
  if (!status.ok() && round->outcome.ok()) round->outcome = status;
  if (--round->unanswered > 0) return;
  if (round->outcome.ok()) round->outcome = Seal(*round);
  std::vector<Callback<void(Status)>> next;
  {
    MutexLock lock(mutex);
    if (!round->outcome.ok()) dirty.insert(round->asked.begin(), round->asked.end());
    running.reset();
    next.swap(waiting);
  }
  for (auto& done : round->done) {
    if (done) done(round->outcome);
  }
  if (next.empty()) return;
  Begin([next = std::move(next)](Status outcome) mutable {
    for (auto& done : next) {
      if (done) done(outcome);
    }
  });
}

// All answers are in the store: from here on a start needs the log from round.start only.
Status Checkpointer::State::Seal(const Round& round) {
  WriteBatch batch;
  std::string position;
  PutFixed64(position, round.start);
  batch.Put(Table::kMeta, kReplayPositionKey, position);
  MR_RETURN_IF_ERROR(store.Write(batch));
  if (!FaultPoint("storage.checkpoint_skips_flush")) MR_RETURN_IF_ERROR(store.Flush());
  log.TruncateBefore(round.start);
  return OkStatus();
}

Checkpointer::Checkpointer(CommitLog& log, Store& store, Options options)
    : state_(std::make_shared<State>(log, store, options)) {
  if (auto position = ReplayPosition(store); position.ok()) {
    MutexLock lock(state_->mutex);
    state_->last_start = *position;
  }
}

Checkpointer::~Checkpointer() {
  if (state_->thread) state_->thread->Stop();
}

StatusOr<Lsn> Checkpointer::ReplayPosition(Store& store) {
  MR_ASSIGN_OR_RETURN(auto value, store.Get(Table::kMeta, kReplayPositionKey));
  if (!value) return Lsn{0};
  if (value->size() != 8) return DataLoss("store: the replay position is malformed");
  return ReadFixed64(value->data());
}

void Checkpointer::MarkDirty(std::shared_ptr<Checkpointed> shard) {
  if (state_->options.log_bytes == Options::kNever) return;
  MutexLock lock(state_->mutex);
  state_->dirty.insert(std::move(shard));
}

void Checkpointer::MayRun() {
  if (state_->options.log_bytes == Options::kNever) return;
  Lsn end = state_->log.Stats().durable_end;
  {
    MutexLock lock(state_->mutex);
    if (state_->running || end < state_->last_start + state_->options.log_bytes) return;
  }
  Run([](Status status) {
    if (!status.ok()) MR_LOG(kWarning, "checkpoint failed: {}", MessageOf(status));
  });
}

void Checkpointer::Run(Callback<void(Status)> done) { state_->Begin(std::move(done)); }

Status Checkpointer::Close() {
  if (state_->options.log_bytes == Options::kNever) return OkStatus();
  if (!state_->thread) return OkStatus();  // the test turns the executor and runs what it wants
  struct Waiter {
    Mutex mutex;
    CondVar done;
    std::optional<Status> outcome;
  };
  auto waiter = std::make_shared<Waiter>();
  Run([waiter](Status status) {
    MutexLock lock(waiter->mutex);
    waiter->outcome = status;
    waiter->done.NotifyAll();
  });
  Status outcome;
  {
    MutexLock lock(waiter->mutex);
    while (!waiter->outcome) waiter->done.Wait(waiter->mutex);
    outcome = *waiter->outcome;
  }
  state_->thread->Stop();
  return outcome;
}

}  // namespace millrace::storage
