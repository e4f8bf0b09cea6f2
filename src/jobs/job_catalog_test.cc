#include "jobs/job_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "planner/urns.h"
#include "storage/memory_log.h"
#include "storage/memory_store.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"
#include "testing/manual_timers.h"
#include "testing/pipeline_builder.h"

namespace millrace::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PipelineBuilder;
using ::testing::SizeIs;

// The catalogue over memory, in virtual time. Its jobs' worker pool is an address where nobody
// listens, so jobs run until they are told to end.
class JobCatalogTest : public ::testing::Test {
 protected:
  JobCatalogTest() { Begin(); }
  ~JobCatalogTest() override { End(); }

  // A process: recovers what is durable and starts.
  void Begin() {
    pool_ = std::make_unique<testing::ManualExecutor>();
    commits_ = std::make_unique<testing::ManualExecutor>();
    timers_ = std::make_unique<testing::ManualTimers>(clock_);
    executor_ = std::make_unique<SerialExecutor>(*pool_);
    storage_ = std::make_unique<storage::Storage>();
    storage_->log = storage::MakeMemoryLog(commits_.get(), contents_);
    storage_->store = std::move(store_);
    storage_->checkpointer = std::make_unique<storage::Checkpointer>(
        *storage_->log, *storage_->store, storage::Checkpointer::Options{});
    JobServices services;
    services.storage = storage_.get();
    services.clock = &clock_;
    services.timers = timers_.get();
    services.pool = pool_.get();
    services.executor = executor_.get();
    services.fn_server = &fn_server_;
    services.endpoint = "127.0.0.1:1";
    services.boot_id = std::to_string(++boots_);
    catalog_ = std::make_shared<JobCatalog>(std::move(services));
    ASSERT_TRUE(catalog_->Load().ok());
    auto position = storage::Checkpointer::ReplayPosition(*storage_->store);
    ASSERT_TRUE(position.ok());
    const Status replayed = storage_->log->Replay(
        *position,
        [&](storage::Lsn, const storage::Record& record) { return catalog_->Replay(record); });
    ASSERT_TRUE(replayed.ok()) << replayed;
    catalog_->Start();
    Settle();
  }
  // Jobs are suspended, as at an orderly stop and as after a kill: nothing of theirs moves on.
  void End() {
    std::thread stop([this] { catalog_->Stop(); });
    std::atomic<bool> stopped = false;
    std::thread turn([&] {
      while (!stopped) {
        Settle();
        std::this_thread::yield();
      }
    });
    stop.join();
    stopped = true;
    turn.join();
    Settle();
    catalog_.reset();
    Settle();
    store_.reset(static_cast<storage::MemoryStore*>(storage_->store.release()));
    storage_.reset();
    executor_.reset();
  }
  void Crash() {
    End();
    store_->RevertToFlushed();
    Begin();
  }
  void Checkpoint() {
    std::atomic<bool> done = false;
    storage_->checkpointer->Run([&](Status status) {
      EXPECT_TRUE(status.ok()) << status;
      done = true;
    });
    while (!done) {
      Settle();
      std::this_thread::yield();
    }
  }
  void Settle() {
    while (pool_->RunAll() + commits_->RunAll() > 0) continue;
  }

  template <typename T, typename Call>
  StatusOr<T> Get(Call call) {
    std::optional<StatusOr<T>> answer;
    call([&](StatusOr<T> value) { answer = std::move(value); });
    Settle();
    return answer ? *std::move(answer) : Internal("no answer");
  }
  StatusOr<std::string> Prepare(const pipe::Pipeline& pipeline, const std::string& name = "job") {
    api::PrepareJobRequest request;
    *request.mutable_pipeline() = pipeline;
    (*request.mutable_pipeline_options()->mutable_fields())["job_name"].set_string_value(name);
    return Get<std::string>([&](auto reply) { catalog_->Prepare(request, std::move(reply)); });
  }
  StatusOr<std::string> Run(const std::string& preparation) {
    return Get<std::string>([&](auto reply) { catalog_->Run(preparation, std::move(reply)); });
  }
  std::string RunJob(const std::string& name = "job") {
    StatusOr<std::string> id = Prepare(Pipeline().pipeline(), name);
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) return "";
    StatusOr<std::string> job = Run(*id);
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(*job, *id) << "clients open streams with the preparation id";
    return *id;
  }
  State StateOf(const std::string& id) {
    StatusOr<JobView> view = View(id);
    return view.ok() ? view->events->state() : api::JobState::UNSPECIFIED;
  }
  StatusOr<JobView> View(const std::string& id) {
    return Get<JobView>([&](auto reply) { catalog_->Get(id, std::move(reply)); });
  }
  void Cancel(const std::string& id) {
    EXPECT_TRUE(Get<State>([&](auto reply) { catalog_->Cancel(id, std::move(reply)); }).ok());
    Settle();
  }

  static PipelineBuilder Pipeline() {
    PipelineBuilder b;
    b.Impulse("impulse", "start").Collection("made").ParDo("make", "start", "made");
    return b;
  }

  testing::FakeClock clock_;
  std::shared_ptr<storage::MemoryLogContents> contents_ = storage::MakeMemoryLogContents();
  std::unique_ptr<storage::MemoryStore> store_ = std::make_unique<storage::MemoryStore>(true);
  std::unique_ptr<testing::ManualExecutor> pool_, commits_;
  std::unique_ptr<testing::ManualTimers> timers_;
  std::unique_ptr<SerialExecutor> executor_;
  std::unique_ptr<storage::Storage> storage_;
  fnapi::FnServer fn_server_;
  std::shared_ptr<JobCatalog> catalog_;
  int boots_ = 0;
};

TEST_F(JobCatalogTest, RunsWhatWasPrepared) {
  const std::string id = RunJob("My Flights!");
  EXPECT_THAT(id, ::testing::StartsWith("my-flights--")) << "ids are parts of resource names";
  EXPECT_EQ(StateOf(id), api::JobState::RUNNING);
  StatusOr<JobView> view = View(id);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->row.name, "My Flights!");
  StatusOr<pipe::Pipeline> pipeline =
      Get<pipe::Pipeline>([&](auto reply) { catalog_->GetPipeline(id, std::move(reply)); });
  ASSERT_TRUE(pipeline.ok());
  EXPECT_TRUE(pipeline->components().transforms().contains("make"));
  EXPECT_EQ(Run(id).status().code(), StatusCode::kNotFound) << "a preparation is run once";
}

TEST_F(JobCatalogTest, APreparedJobIsNoJobYet) {
  StatusOr<std::string> id = Prepare(Pipeline().pipeline());
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(View(*id).status().code(), StatusCode::kNotFound)
      << "streams opened before Run would inherit the client's deadline";
}

TEST_F(JobCatalogTest, RefusesDockerEnvironments) {
  PipelineBuilder b = Pipeline();
  b.components().mutable_environments()->at("py").set_urn("beam:env:docker:v1");
  const Status status = Prepare(b.pipeline()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("LOOPBACK")) << "it says what to do";
}

TEST_F(JobCatalogTest, TakesTheExternalOneOfSeveralEnvironments) {
  PipelineBuilder b = Pipeline();
  pipe::Environment& environment = b.components().mutable_environments()->at("py");
  pipe::AnyOfEnvironmentPayload any;
  any.add_environments()->set_urn("beam:env:docker:v1");
  *any.add_environments() = environment;
  environment.set_urn("beam:env:anyof:v1");
  environment.set_payload(any.SerializeAsString());
  EXPECT_TRUE(Prepare(b.pipeline()).ok());
}

TEST_F(JobCatalogTest, RefusesPubSubWithoutTheRole) {
  PipelineBuilder b;
  b.Read("read", "messages").Collection("out", "bytes", "global", false);
  b.ParDo("use", "messages", "out");
  const Status status = Prepare(b.pipeline()).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("--roles=pubsub,dataflow"));
}

TEST_F(JobCatalogTest, RefusesBadOptionsAndPipelines) {
  api::PrepareJobRequest request;
  *request.mutable_pipeline() = Pipeline().pipeline();
  (*request.mutable_pipeline_options()->mutable_fields())["dataflow_service_options"]
      .mutable_list_value()
      ->add_values()
      ->set_string_value("timestamp_band=x");
  EXPECT_EQ(Get<std::string>([&](auto reply) { catalog_->Prepare(request, std::move(reply)); })
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  PipelineBuilder broken = Pipeline();
  broken.components().mutable_pcollections()->clear();
  EXPECT_EQ(Prepare(broken.pipeline()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(JobCatalogTest, CancelEndsAJobForGood) {
  const std::string id = RunJob();
  Cancel(id);
  StatusOr<JobView> view = View(id);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->events->state(), api::JobState::CANCELLED);
  std::vector<std::string> states;
  uint64_t position = 0;
  api::JobMessagesResponse event;
  bool ended = false;
  while (view->events->Next(&position, &event, &ended, [] {})) {
    if (event.has_state_response())
      states.push_back(api::JobState::Enum_Name(event.state_response().state()));
  }
  EXPECT_TRUE(ended) << "clients wait for the end of the stream";
  EXPECT_THAT(states, ElementsAre("STOPPED", "STARTING", "RUNNING", "CANCELLING", "CANCELLED"));
  Crash();
  EXPECT_EQ(StateOf(id), api::JobState::CANCELLED);
  auto pipelines = storage_->store->NewIterator(storage::Table::kJobs, "pipeline/", "pipeline0");
  pipelines->Seek("pipeline/");
  EXPECT_FALSE(pipelines->Valid()) << "the pipeline of an ended job is not kept";
}

TEST_F(JobCatalogTest, CancelOfAPreparedJobForgetsIt) {
  StatusOr<std::string> id = Prepare(Pipeline().pipeline());
  ASSERT_TRUE(id.ok());
  Cancel(*id);
  EXPECT_EQ(Run(*id).status().code(), StatusCode::kNotFound);
}

TEST_F(JobCatalogTest, ARunningJobSurvives) {
  const std::string id = RunJob();
  for (int i = 0; i < 2; ++i) {
    Crash();
    EXPECT_EQ(StateOf(id), api::JobState::RUNNING);
  }
  const std::string second = RunJob();
  std::vector<JobView> all;
  catalog_->List([&](std::vector<JobView> views) { all = std::move(views); });
  Settle();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].row.id, id);
  EXPECT_EQ(all[1].row.id, second);
  EXPECT_NE(all[0].row.uid, all[1].row.uid) << "uids are never used twice";
  Cancel(id);
  EXPECT_EQ(StateOf(id), api::JobState::CANCELLED);
  EXPECT_EQ(StateOf(second), api::JobState::RUNNING);
}

// A checkpoint cuts the log: what it was not given is lost.
TEST_F(JobCatalogTest, RowsAreInTheCheckpoint) {
  const std::string id = RunJob();
  Checkpoint();
  Crash();
  EXPECT_EQ(StateOf(id), api::JobState::RUNNING);
  Cancel(id);
  Checkpoint();
  Checkpoint();
  Crash();
  EXPECT_EQ(StateOf(id), api::JobState::CANCELLED);
}

TEST_F(JobCatalogTest, AnEndedJobKeepsItsMetrics) {
  PipelineBuilder b;  // nothing for a worker to do: it ends by itself
  b.Impulse("impulse", "start");
  b.Collection("same").Transform("shuffle", planner::urns::kReshuffle, {{"in", "start"}},
                                 {{"out", "same"}});
  StatusOr<std::string> id = Prepare(b.pipeline());
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Run(*id).ok());
  for (int i = 0; i < 100 && StateOf(*id) != api::JobState::DONE; ++i) {
    clock_.Advance(std::chrono::milliseconds(100));
    timers_->RunDue();
    Settle();
  }
  ASSERT_EQ(StateOf(*id), api::JobState::DONE);
  const auto metrics = [&] {
    StatusOr<api::MetricResults> results =
        Get<api::MetricResults>([&](auto reply) { catalog_->Metrics(*id, std::move(reply)); });
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? results->SerializeAsString() : "?";
  };
  const std::string before = metrics();
  Crash();
  EXPECT_EQ(StateOf(*id), api::JobState::DONE);
  EXPECT_EQ(metrics(), before);
}

TEST_F(JobCatalogTest, DrainSurvives) {
  const std::string id = RunJob();
  ASSERT_TRUE(Get<State>([&](auto reply) { catalog_->Drain(id, std::move(reply)); }).ok());
  EXPECT_EQ(StateOf(id), api::JobState::DRAINING);
  Crash();
  EXPECT_EQ(StateOf(id), api::JobState::DRAINING);
}

TEST_F(JobCatalogTest, WhatCannotGoOnHasFailed) {
  const std::string id = RunJob();
  Checkpoint();
  // As if a later version ran other pipelines: the stored one is one that this server refuses.
  PipelineBuilder other = Pipeline();
  other.pipeline().add_requirements("beam:requirement:of:the:future");
  storage::WriteBatch batch;
  batch.Put(storage::Table::kJobs, PipelineKey(View(id)->row.uid),
            other.pipeline().SerializeAsString());
  ASSERT_TRUE(storage_->store->Write(batch).ok());
  ASSERT_TRUE(storage_->store->Flush().ok());
  Crash();
  EXPECT_EQ(StateOf(id), api::JobState::FAILED);
  EXPECT_THAT(View(id)->row.error, HasSubstr("beam:requirement:of:the:future"));
}

TEST_F(JobCatalogTest, UnknownJobsAreNotFound) {
  EXPECT_EQ(View("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Run("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(
      Get<State>([&](auto reply) { catalog_->Cancel("nobody", std::move(reply)); }).status().code(),
      StatusCode::kNotFound);
  EXPECT_EQ(
      Get<api::MetricResults>([&](auto reply) { catalog_->Metrics("nobody", std::move(reply)); })
          .status()
          .code(),
      StatusCode::kNotFound);
}

}  // namespace
}  // namespace millrace::jobs
