// Beam's Job API over gRPC: translates between its messages and the catalogue.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "jobs/job_catalog.h"
#include "org/apache/beam/model/job_management/v1/beam_job_api.grpc.pb.h"

namespace millrace::jobs {

// Thread-safe. The catalogue and the endpoint are set before the first call is answered; until then
// UNAVAILABLE.
class JobService : public api::JobService::CallbackService {
 public:
  void Open(std::shared_ptr<JobCatalog> catalog, std::string endpoint);

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const api::PrepareJobRequest* request,
                                    api::PrepareJobResponse* response) override;
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                const api::RunJobRequest* request,
                                api::RunJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJobs(grpc::CallbackServerContext* context,
                                    const api::GetJobsRequest* request,
                                    api::GetJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext* context,
                                     const api::GetJobStateRequest* request,
                                     api::JobStateEvent* response) override;
  grpc::ServerUnaryReactor* GetPipeline(grpc::CallbackServerContext* context,
                                        const api::GetJobPipelineRequest* request,
                                        api::GetJobPipelineResponse* response) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const api::CancelJobRequest* request,
                                   api::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const api::DrainJobRequest* request,
                                  api::DrainJobResponse* response) override;
  grpc::ServerWriteReactor<api::JobStateEvent>* GetStateStream(
      grpc::CallbackServerContext* context, const api::GetJobStateRequest* request) override;
  grpc::ServerWriteReactor<api::JobMessagesResponse>* GetMessageStream(
      grpc::CallbackServerContext* context, const api::JobMessagesRequest* request) override;
  grpc::ServerUnaryReactor* GetJobMetrics(grpc::CallbackServerContext* context,
                                          const api::GetJobMetricsRequest* request,
                                          api::GetJobMetricsResponse* response) override;
  grpc::ServerUnaryReactor* DescribePipelineOptions(
      grpc::CallbackServerContext* context, const api::DescribePipelineOptionsRequest* request,
      api::DescribePipelineOptionsResponse* response) override;

 private:
  std::shared_ptr<JobCatalog> catalog() const;

  mutable Mutex mutex_;
  std::shared_ptr<JobCatalog> catalog_ MR_GUARDED_BY(mutex_);
  std::string endpoint_ MR_GUARDED_BY(mutex_);
};

// Canonical codes are the same numbers.
inline grpc::Status ToGrpc(const Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(MessageOf(status)));
}

}  // namespace millrace::jobs
