// Errors of this project: canonical codes (the same numbers as gRPC's), a sentence that names
// field, value and bound, and optionally an ErrorInfo-like reason that clients can match. Values
// only; our code throws nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

using Status = absl::Status;
using StatusCode = absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

inline Status OkStatus() { return Status(); }
Status MakeStatus(StatusCode code, std::string_view message);
Status InvalidArgument(std::string_view message);
Status NotFound(std::string_view message);
Status AlreadyExists(std::string_view message);
Status FailedPrecondition(std::string_view message);
Status ResourceExhausted(std::string_view message);
Status Unavailable(std::string_view message);
Status Unimplemented(std::string_view message);
Status Internal(std::string_view message);
Status Aborted(std::string_view message);
Status Cancelled(std::string_view message);
Status DataLoss(std::string_view message);
Status DeadlineExceeded(std::string_view message);

// The message as std::string_view (Debian's absl::string_view is a type of its own).
inline std::string_view MessageOf(const Status& status) {
  return {status.message().data(), status.message().size()};
}

// Machine-readable cause, sent to clients as google.rpc.ErrorInfo.
struct ErrorInfo {
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> metadata;
};
Status WithErrorInfo(Status status, const ErrorInfo& info);
std::optional<ErrorInfo> GetErrorInfo(const Status& status);

}  // namespace millrace

#define MR_CONCAT_INNER(a, b) a##b
#define MR_CONCAT(a, b) MR_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` is not OK.
#define MR_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::millrace::Status mr_status_ = (expr);  \
    if (!mr_status_.ok()) return mr_status_; \
  } while (false)

// MR_ASSIGN_OR_RETURN(auto x, Compute()): binds the value or returns the error.
#define MR_ASSIGN_OR_RETURN(lhs, expr) \
  MR_ASSIGN_OR_RETURN_INNER(MR_CONCAT(mr_or_, __LINE__), lhs, expr)
#define MR_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return tmp.status();             \
  lhs = std::move(tmp).value()
