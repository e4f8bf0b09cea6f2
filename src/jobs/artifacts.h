// Files that a pipeline's environments need: fetched from the submitting client (reverse
// retrieval), kept by content, served to workers.
#pragma once

#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "jobs/job_catalog.h"
#include "org/apache/beam/model/job_management/v1/beam_artifact_api.grpc.pb.h"

namespace millrace::jobs {

// Where artifacts lie: files named by the hash of their content. Thread-safe.
class ArtifactStore {
 public:
  explicit ArtifactStore(std::string directory) : directory_(std::move(directory)) {}
  // Path of the file with this hash, empty if there is none.
  std::string Find(const std::string& sha256) const;
  // Keeps the content; returns its path.
  StatusOr<std::string> Keep(const std::string& content);
  // Only files of this store are ever served.
  bool Owns(const std::string& path) const;

 private:
  const std::string directory_;
};

class ArtifactStaging : public api::ArtifactStagingService::CallbackService {
 public:
  explicit ArtifactStaging(ArtifactStore& store) : store_(store) {}
  void Open(std::shared_ptr<JobCatalog> catalog);
  grpc::ServerBidiReactor<api::ArtifactResponseWrapper, api::ArtifactRequestWrapper>*
  ReverseArtifactRetrievalService(grpc::CallbackServerContext* context) override;

 private:
  ArtifactStore& store_;
  Mutex mutex_;
  std::shared_ptr<JobCatalog> catalog_ MR_GUARDED_BY(mutex_);
};

class ArtifactRetrieval : public api::ArtifactRetrievalService::CallbackService {
 public:
  explicit ArtifactRetrieval(const ArtifactStore& store) : store_(store) {}
  grpc::ServerUnaryReactor* ResolveArtifacts(grpc::CallbackServerContext* context,
                                             const api::ResolveArtifactsRequest* request,
                                             api::ResolveArtifactsResponse* response) override;
  grpc::ServerWriteReactor<api::GetArtifactResponse>* GetArtifact(
      grpc::CallbackServerContext* context, const api::GetArtifactRequest* request) override;

 private:
  const ArtifactStore& store_;
};

}  // namespace millrace::jobs
