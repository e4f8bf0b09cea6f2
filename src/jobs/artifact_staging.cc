#include <deque>
#include <map>
#include <utility>

#include "fmt/format.h"
#include "jobs/artifacts.h"
#include "jobs/job_service.h"

namespace millrace::jobs {
namespace {

constexpr char kFileType[] = "beam:artifact:type:file:v1";
constexpr char kEmbeddedType[] = "beam:artifact:type:embedded:v1";

// Drives one client: for each environment ask it to resolve its dependencies, then fetch those that
// we do not have.
class StagingSession
    : public grpc::ServerBidiReactor<api::ArtifactResponseWrapper, api::ArtifactRequestWrapper>,
      public std::enable_shared_from_this<StagingSession> {
 public:
  StagingSession(ArtifactStore& store, std::shared_ptr<JobCatalog> catalog)
      : store_(store), catalog_(std::move(catalog)) {}

  void Start() {
    self_ = shared_from_this();
    StartRead(&in_);
  }

  void OnReadDone(bool ok) override {
    if (!ok)
      return End({grpc::StatusCode::CANCELLED, "the client left before its artifacts were staged"});
    if (token_.empty()) return OnToken();
    if (resolving_) return OnResolved();
    OnChunk();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(grpc::Status::CANCELLED);
    StartRead(&in_);
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { self_.reset(); }

 private:
  void OnToken() {
    token_ = in_.staging_token();
    catalog_->EnvironmentsOf(token_, [self = shared_from_this()](
                                         StatusOr<std::map<std::string, pipe::Environment>> found) {
      if (!found.ok()) return self->End(ToGrpc(found.status()));
      self->environments_ = *std::move(found);
      for (const auto& [id, environment] : self->environments_) self->to_resolve_.push_back(id);
      self->ResolveNext();
    });
  }

  void ResolveNext() {
    while (!to_resolve_.empty() && environments_[to_resolve_.front()].dependencies().empty())
      to_resolve_.pop_front();
    if (to_resolve_.empty()) {
      catalog_->Staged(token_, environments_);
      return End(grpc::Status::OK);
    }
    resolving_ = true;
    out_.Clear();
    api::ResolveArtifactsRequest* request = out_.mutable_resolve_artifact();
    *request->mutable_artifacts() = environments_[to_resolve_.front()].dependencies();
    request->add_preferred_urns(kFileType);
    StartWrite(&out_);
  }

  void OnResolved() {
    resolving_ = false;
    for (pipe::ArtifactInformation& artifact :
         *in_.mutable_resolve_artifact_response()->mutable_replacements()) {
      to_fetch_.push_back(std::move(artifact));
    }
    FetchNext();
  }

  // Embedded ones carry their content; files with a known hash are here already.
  void FetchNext() {
    while (!to_fetch_.empty()) {
      pipe::ArtifactInformation& artifact = to_fetch_.front();
      pipe::ArtifactFilePayload file;
      if (artifact.type_urn() == kEmbeddedType) {
        fetched_.push_back(std::move(artifact));
      } else if (artifact.type_urn() == kFileType &&
                 file.ParseFromString(artifact.type_payload()) &&
                 !store_.Find(file.sha256()).empty()) {
        Fetched(store_.Find(file.sha256()), std::move(artifact));
      } else {
        out_.Clear();
        *out_.mutable_get_artifact()->mutable_artifact() = artifact;
        content_.clear();
        StartWrite(&out_);
        return;
      }
      to_fetch_.pop_front();
    }
    auto* dependencies = environments_[to_resolve_.front()].mutable_dependencies();
    dependencies->Clear();
    for (pipe::ArtifactInformation& artifact : fetched_) *dependencies->Add() = std::move(artifact);
    fetched_.clear();
    to_resolve_.pop_front();
    ResolveNext();
  }

  void OnChunk() {
    content_ += in_.get_artifact_response().data();
    if (!in_.is_last()) {
      StartRead(&in_);
      return;
    }
    StatusOr<std::string> path = store_.Keep(content_);
    if (!path.ok()) return End(ToGrpc(path.status()));
    Fetched(*path, std::move(to_fetch_.front()));
    to_fetch_.pop_front();
    FetchNext();
  }

  void Fetched(const std::string& path, pipe::ArtifactInformation artifact) {
    pipe::ArtifactFilePayload file;
    file.set_path(path);
    file.set_sha256(path.substr(path.rfind('/') + 1));
    artifact.set_type_urn(kFileType);
    artifact.set_type_payload(file.SerializeAsString());
    fetched_.push_back(std::move(artifact));
  }

  void End(grpc::Status status) {
    MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    Finish(std::move(status));
  }

  ArtifactStore& store_;
  const std::shared_ptr<JobCatalog> catalog_;
  api::ArtifactResponseWrapper in_;
  api::ArtifactRequestWrapper out_;
  std::string token_, content_;
  std::map<std::string, pipe::Environment> environments_;
  std::deque<std::string> to_resolve_;
  std::deque<pipe::ArtifactInformation> to_fetch_;
  std::deque<pipe::ArtifactInformation> fetched_;
  bool resolving_ = false;
  Mutex mutex_;
  bool ended_ MR_GUARDED_BY(mutex_) = false;
  std::shared_ptr<StagingSession> self_;
};

class RefusedSession
    : public grpc::ServerBidiReactor<api::ArtifactResponseWrapper, api::ArtifactRequestWrapper> {
 public:
  RefusedSession() { Finish({grpc::StatusCode::UNAVAILABLE, "the server is starting"}); }
  void OnDone() override { delete this; }
};

}  // namespace

void ArtifactStaging::Open(std::shared_ptr<JobCatalog> catalog) {
  MutexLock lock(mutex_);
  catalog_ = std::move(catalog);
}

grpc::ServerBidiReactor<api::ArtifactResponseWrapper, api::ArtifactRequestWrapper>*
ArtifactStaging::ReverseArtifactRetrievalService(grpc::CallbackServerContext* context) {
  std::shared_ptr<JobCatalog> catalog;
  {
    MutexLock lock(mutex_);
    catalog = catalog_;
  }
  if (catalog == nullptr) return new RefusedSession();
  auto session = std::make_shared<StagingSession>(store_, std::move(catalog));
  session->Start();
  return session.get();
}

}  // namespace millrace::jobs
