// What a client says on a StreamingPull stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace::api {

struct StreamingPullRequest {
  std::string subscription;
  std::vector<std::string> ack_ids;
  std::vector<int32_t> modify_deadline_seconds;
  std::vector<std::string> modify_deadline_ack_ids;
  int32_t stream_ack_deadline_seconds = 0;
  std::string client_id;
  int64_t max_outstanding_messages = 0;
  int64_t max_outstanding_bytes = 0;
  int64_t protocol_version = 0;
  bool empty = true;  // a ping

  static StatusOr<StreamingPullRequest> Parse(std::string_view bytes);
  // The rules of the request that opens a stream, and of those after it.
  Status CheckFirst() const;
  Status CheckLater() const;
};

}  // namespace millrace::api
