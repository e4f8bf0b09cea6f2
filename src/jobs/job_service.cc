#include "jobs/job_service.h"

#include <utility>

#include "jobs/event_stream.h"

namespace millrace::jobs {
namespace {

const Status kStarting = Unavailable("the server is starting");

// Answers a unary call with what `fill` makes of the result.
template <typename T, typename Fill>
Reply<T> Answer(grpc::ServerUnaryReactor* reactor, Fill fill) {
  return [reactor, fill = std::move(fill)](StatusOr<T> result) mutable {
    if (result.ok()) fill(*std::move(result));
    reactor->Finish(ToGrpc(result.status()));
  };
}

void FillInfo(const JobView& view, api::JobInfo* info) {
  info->set_job_id(view.row.id);
  info->set_job_name(view.row.name);
  info->mutable_pipeline_options()->ParseFromString(view.row.options);
  info->set_state(view.events->state());
}

}  // namespace

void JobService::Open(std::shared_ptr<JobCatalog> catalog, std::string endpoint) {
  MutexLock lock(mutex_);
  catalog_ = std::move(catalog);
  endpoint_ = std::move(endpoint);
}

std::shared_ptr<JobCatalog> JobService::catalog() const {
  MutexLock lock(mutex_);
  return catalog_;
}

grpc::ServerUnaryReactor* JobService::Prepare(grpc::CallbackServerContext* context,
                                              const api::PrepareJobRequest* request,
                                              api::PrepareJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::shared_ptr<JobCatalog> jobs;
  std::string endpoint;
  {
    MutexLock lock(mutex_);
    jobs = catalog_;
    endpoint = endpoint_;
  }
  if (jobs == nullptr) {
    reactor->Finish(ToGrpc(kStarting));
    return reactor;
  }
  jobs->Prepare(*request, Answer<std::string>(reactor, [response, endpoint](std::string id) {
    response->set_preparation_id(id);
    response->mutable_artifact_staging_endpoint()->set_url(endpoint);
    response->set_staging_session_token(id);
  }));
  return reactor;
}

grpc::ServerUnaryReactor* JobService::Run(grpc::CallbackServerContext* context,
                                          const api::RunJobRequest* request,
                                          api::RunJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->Run(request->preparation_id(), Answer<std::string>(reactor, [response](std::string id) {
                response->set_job_id(id);
              }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJobs(grpc::CallbackServerContext* context,
                                              const api::GetJobsRequest* request,
                                              api::GetJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->List([reactor, response](std::vector<JobView> views) {
      for (const JobView& view : views) FillInfo(view, response->add_job_info());
      reactor->Finish(grpc::Status::OK);
    });
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetState(grpc::CallbackServerContext* context,
                                               const api::GetJobStateRequest* request,
                                               api::JobStateEvent* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->Get(request->job_id(), Answer<JobView>(reactor, [response](JobView view) {
                *response = view.events->LastState();
              }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetPipeline(grpc::CallbackServerContext* context,
                                                  const api::GetJobPipelineRequest* request,
                                                  api::GetJobPipelineResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->GetPipeline(request->job_id(),
                      Answer<pipe::Pipeline>(reactor, [response](pipe::Pipeline pipeline) {
                        response->mutable_pipeline()->Swap(&pipeline);
                      }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::Cancel(grpc::CallbackServerContext* context,
                                             const api::CancelJobRequest* request,
                                             api::CancelJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->Cancel(request->job_id(),
                 Answer<State>(reactor, [response](State state) { response->set_state(state); }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::Drain(grpc::CallbackServerContext* context,
                                            const api::DrainJobRequest* request,
                                            api::DrainJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->Drain(request->job_id(),
                Answer<State>(reactor, [response](State state) { response->set_state(state); }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerWriteReactor<api::JobStateEvent>* JobService::GetStateStream(
    grpc::CallbackServerContext* context, const api::GetJobStateRequest* request) {
  auto stream = EventStream<api::JobStateEvent>::Make(
      [](const api::JobMessagesResponse& event, api::JobStateEvent* out) {
        if (!event.has_state_response()) return false;
        *out = event.state_response();
        return true;
      });
  if (auto jobs = catalog()) {
    jobs->Get(request->job_id(),
              [stream](StatusOr<JobView> view) { stream->Follow(std::move(view)); });
  } else {
    stream->Follow(kStarting);
  }
  return stream.get();
}

grpc::ServerWriteReactor<api::JobMessagesResponse>* JobService::GetMessageStream(
    grpc::CallbackServerContext* context, const api::JobMessagesRequest* request) {
  auto stream = EventStream<api::JobMessagesResponse>::Make(
      [](const api::JobMessagesResponse& event, api::JobMessagesResponse* out) {
        *out = event;
        return true;
      });
  if (auto jobs = catalog()) {
    jobs->Get(request->job_id(),
              [stream](StatusOr<JobView> view) { stream->Follow(std::move(view)); });
  } else {
    stream->Follow(kStarting);
  }
  return stream.get();
}

grpc::ServerUnaryReactor* JobService::GetJobMetrics(grpc::CallbackServerContext* context,
                                                    const api::GetJobMetricsRequest* request,
                                                    api::GetJobMetricsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (auto jobs = catalog()) {
    jobs->Metrics(request->job_id(),
                  Answer<api::MetricResults>(reactor, [response](api::MetricResults results) {
                    response->mutable_metrics()->Swap(&results);
                  }));
  } else {
    reactor->Finish(ToGrpc(kStarting));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobService::DescribePipelineOptions(
    grpc::CallbackServerContext* context, const api::DescribePipelineOptionsRequest* request,
    api::DescribePipelineOptionsResponse* response) {
  // None of our own: ours are service options, which every SDK knows how to pass.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace millrace::jobs
