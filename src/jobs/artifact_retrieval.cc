#include <fstream>
#include <utility>

#include "fmt/format.h"
#include "jobs/artifacts.h"

namespace millrace::jobs {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr char kFileType[] = "beam:artifact:type:file:v1";
constexpr char kEmbeddedType[] = "beam:artifact:type:embedded:v1";

// Sends one artifact in pieces; owns itself.
class Download : public grpc::ServerWriteReactor<api::GetArtifactResponse> {
 public:
  Download(const ArtifactStore& store, const pipe::ArtifactInformation& artifact) {
    pipe::ArtifactFilePayload file;
    pipe::EmbeddedFilePayload embedded;
    if (artifact.type_urn() == kEmbeddedType && embedded.ParseFromString(artifact.type_payload())) {
      embedded_ = embedded.data();
      Next();
    } else if (artifact.type_urn() == kFileType && file.ParseFromString(artifact.type_payload()) &&
               store.Owns(file.path())) {
      file_.open(file.path(), std::ios::binary);
      Next();
    } else {
      Finish({grpc::StatusCode::NOT_FOUND,
              fmt::format("no artifact of type {} with this payload was staged",
                          artifact.type_urn())});
    }
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    std::string piece;
    if (file_.is_open()) {
      piece.resize(kPieceBytes);
      file_.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      piece.resize(static_cast<size_t>(file_.gcount()));
    } else {
      piece = std::exchange(embedded_, "");
    }
    if (piece.empty()) {
      Finish(grpc::Status::OK);
      return;
    }
    out_.set_data(std::move(piece));
    StartWrite(&out_);
  }

  std::ifstream file_;
  std::string embedded_;
  api::GetArtifactResponse out_;
};

}  // namespace

grpc::ServerUnaryReactor* ArtifactRetrieval::ResolveArtifacts(
    grpc::CallbackServerContext* context, const api::ResolveArtifactsRequest* request,
    api::ResolveArtifactsResponse* response) {
  *response->mutable_replacements() = request->artifacts();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<api::GetArtifactResponse>* ArtifactRetrieval::GetArtifact(
    grpc::CallbackServerContext* context, const api::GetArtifactRequest* request) {
  return new Download(store_, request->artifact());
}

}  // namespace millrace::jobs
