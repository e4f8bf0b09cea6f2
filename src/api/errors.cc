#include "api/errors.h"

#include <array>

#include "api/json_text.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace millrace::api {
namespace {

struct CodeRow {
  std::string_view name;
  int http;
};

// Indexed by canonical code.
constexpr std::array<CodeRow, 17> kCodes = {{{"OK", 200},
                                             {"CANCELLED", 499},
                                             {"UNKNOWN", 500},
                                             {"INVALID_ARGUMENT", 400},
                                             {"DEADLINE_EXCEEDED", 504},
                                             {"NOT_FOUND", 404},
                                             {"ALREADY_EXISTS", 409},
                                             {"PERMISSION_DENIED", 403},
                                             {"RESOURCE_EXHAUSTED", 429},
                                             {"FAILED_PRECONDITION", 400},
                                             {"ABORTED", 409},
                                             {"OUT_OF_RANGE", 400},
                                             {"UNIMPLEMENTED", 501},
                                             {"INTERNAL", 500},
                                             {"UNAVAILABLE", 503},
                                             {"DATA_LOSS", 500},
                                             {"UNAUTHENTICATED", 401}}};

const CodeRow& RowOf(StatusCode code) {
  auto index = static_cast<size_t>(code);
  return kCodes[index < kCodes.size() ? index : 2];
}

// The reason under which BadRequest travels inside a Status, and the key of the field's path.
constexpr char kBadRequestReason[] = "api/bad_request";
constexpr char kField[] = "field";

}  // namespace

Status BadRequest(std::string_view field, std::string_view description) {
  ErrorInfo info;
  info.reason = kBadRequestReason;
  if (!field.empty()) info.metadata[kField] = std::string(field);
  return WithErrorInfo(InvalidArgument(description), info);
}

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(MessageOf(status));
  auto code = static_cast<grpc::StatusCode>(status.code());
  std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info) return grpc::Status(code, message);
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  if (info->reason == kBadRequestReason) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(info->metadata[kField]);
    violation->set_description(message);
    details.add_details()->PackFrom(bad);
  } else {
    google::rpc::ErrorInfo error;
    error.set_reason(info->reason);
    error.set_domain(info->domain);
    for (const auto& [key, value] : info->metadata) (*error.mutable_metadata())[key] = value;
    details.add_details()->PackFrom(error);
  }
  return grpc::Status(code, message, details.SerializeAsString());
}

int HttpCodeOf(StatusCode code) { return RowOf(code).http; }

std::string_view CodeName(StatusCode code) { return RowOf(code).name; }

std::string ErrorJson(const Status& status) {
  std::string out = "{\"error\":{\"code\":" + std::to_string(HttpCodeOf(status.code())) +
                    ",\"message\":" + QuoteJson(MessageOf(status)) +
                    ",\"status\":" + QuoteJson(CodeName(status.code()));
  if (std::optional<ErrorInfo> info = GetErrorInfo(status)) {
    out += ",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.";
    if (info->reason == kBadRequestReason) {
      out += "BadRequest\",\"fieldViolations\":[{";
      if (auto field = info->metadata.find(kField); field != info->metadata.end()) {
        out += "\"field\":" + QuoteJson(field->second) + ",";
      }
      out += "\"description\":" + QuoteJson(MessageOf(status)) + "}]";
    } else {
      out += "ErrorInfo\",\"reason\":" + QuoteJson(info->reason) +
             ",\"domain\":" + QuoteJson(info->domain);
      if (!info->metadata.empty()) {
        out += ",\"metadata\":{";
        const char* separator = "";
        for (const auto& [key, value] : info->metadata) {
          out += separator + QuoteJson(key) + ":" + QuoteJson(value);
          separator = ",";
        }
        out += "}";
      }
    }
    out += "}]";
  }
  return out + "}}";
}

}  // namespace millrace::api
