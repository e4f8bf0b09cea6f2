#include "base/status.h"

#include "absl/strings/cord.h"

namespace millrace {
namespace {

constexpr char kErrorInfoUrl[] = "type.millrace/error_info";

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// Length-prefixed fields: reason, domain, then key and value in turn.
void PutField(std::string& out, std::string_view field) {
  out += std::to_string(field.size());
  out += ':';
  out += field;
}

bool TakeField(std::string_view& in, std::string& field) {
  size_t colon = in.find(':');
  if (colon == std::string_view::npos) return false;
  size_t size = std::stoul(std::string(in.substr(0, colon)));
  if (in.size() < colon + 1 + size) return false;
  field = in.substr(colon + 1, size);
  in.remove_prefix(colon + 1 + size);
  return true;
}

}  // namespace

Status MakeStatus(StatusCode code, std::string_view message) { return Status(code, Absl(message)); }
Status InvalidArgument(std::string_view m) { return absl::InvalidArgumentError(Absl(m)); }
Status NotFound(std::string_view m) { return absl::NotFoundError(Absl(m)); }
Status AlreadyExists(std::string_view m) { return absl::AlreadyExistsError(Absl(m)); }
Status FailedPrecondition(std::string_view m) { return absl::FailedPreconditionError(Absl(m)); }
Status ResourceExhausted(std::string_view m) { return absl::ResourceExhaustedError(Absl(m)); }
Status Unavailable(std::string_view m) { return absl::UnavailableError(Absl(m)); }
Status Unimplemented(std::string_view m) { return absl::UnimplementedError(Absl(m)); }
Status Internal(std::string_view m) { return absl::InternalError(Absl(m)); }
Status Aborted(std::string_view m) { return absl::AbortedError(Absl(m)); }
Status Cancelled(std::string_view m) { return absl::CancelledError(Absl(m)); }
Status DataLoss(std::string_view m) { return absl::DataLossError(Absl(m)); }
Status DeadlineExceeded(std::string_view m) { return absl::DeadlineExceededError(Absl(m)); }

Status WithErrorInfo(Status status, const ErrorInfo& info) {
  std::string bytes;
  PutField(bytes, info.reason);
  PutField(bytes, info.domain);
  for (const auto& [key, value] : info.metadata) {
    PutField(bytes, key);
    PutField(bytes, value);
  }
  status.SetPayload(kErrorInfoUrl, absl::Cord(bytes));
  return status;
}

std::optional<ErrorInfo> GetErrorInfo(const Status& status) {
  auto payload = status.GetPayload(kErrorInfoUrl);
  if (!payload) return std::nullopt;
  std::string bytes(*payload);
  std::string_view in = bytes;
  ErrorInfo info;
  if (!TakeField(in, info.reason) || !TakeField(in, info.domain)) return std::nullopt;
  std::string key, value;
  while (TakeField(in, key) && TakeField(in, value)) info.metadata[key] = value;
  return info;
}

}  // namespace millrace
