// Errors of the broker as gRPC statuses and as the JSON envelope of Google's REST APIs.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::api {

// An ErrorInfo travels as google.rpc.Status in the trailer grpc-status-details-bin.
grpc::Status ToGrpcStatus(const Status& status);

int HttpCodeOf(StatusCode code);
// "INVALID_ARGUMENT" and so on.
std::string_view CodeName(StatusCode code);

// A violation of the request's form, told as google.rpc.BadRequest as well. `field` may be empty.
Status BadRequest(std::string_view field, std::string_view description);

// {"error":{"code":…,"message":…,"status":…,"details":[…]}}, not indented.
std::string ErrorJson(const Status& status);

}  // namespace millrace::api
