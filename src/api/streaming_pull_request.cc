#include "api/streaming_pull_request.h"

#include <fmt/format.h>

#include "api/method_table.h"
#include "api/wire.h"

namespace millrace::api {
namespace {

constexpr int32_t kAckDeadlineMin = 10, kAckDeadlineMax = 600;

Status BadAckDeadline(int32_t seconds, int32_t minimum) {
  return InvalidArgument(fmt::format(
      "Invalid ack deadline given (ack_deadline={}). The ack deadline must be between {} and {} "
      "seconds.",
      seconds, minimum, kAckDeadlineMax));
}

Status CheckModifications(const StreamingPullRequest& request) {
  if (request.modify_deadline_seconds.size() != request.modify_deadline_ack_ids.size()) {
    return InvalidArgument(fmt::format(
        "The lists modify_deadline_seconds and modify_deadline_ack_ids must have the same length. "
        "You passed {} and {}.",
        request.modify_deadline_seconds.size(), request.modify_deadline_ack_ids.size()));
  }
  for (int32_t seconds : request.modify_deadline_seconds) {
    if (seconds < 0 || seconds > kAckDeadlineMax) return BadAckDeadline(seconds, 0);
  }
  return OkStatus();
}

Status OnlyFirst(std::string_view field) {
  return InvalidArgument(fmt::format(
      "The field {} may only be set in the first request of a StreamingPull stream.", field));
}

}  // namespace

StatusOr<StreamingPullRequest> StreamingPullRequest::Parse(std::string_view bytes) {
  StreamingPullRequest request;
  request.empty = bytes.empty();
  WireReader reader(bytes);
  while (reader.Next()) {
    bool is_bytes = reader.type() == WireType::kBytes;
    bool is_varint = reader.type() == WireType::kVarint;
    if (reader.field() == 1 && is_bytes) {
      request.subscription = reader.bytes();
    } else if (reader.field() == 2 && is_bytes) {
      request.ack_ids.emplace_back(reader.bytes());
    } else if (reader.field() == 3 && is_varint) {
      request.modify_deadline_seconds.push_back(static_cast<int32_t>(reader.value()));
    } else if (reader.field() == 3 && is_bytes) {
      std::string_view packed = reader.bytes();
      VarintReader values(packed);
      while (values.Next()) {
        request.modify_deadline_seconds.push_back(static_cast<int32_t>(values.value()));
      }
      if (!values.ok()) return UnreadableRequest("google.pubsub.v1.StreamingPullRequest");
    } else if (reader.field() == 4 && is_bytes) {
      request.modify_deadline_ack_ids.emplace_back(reader.bytes());
    } else if (reader.field() == 5 && is_varint) {
      request.stream_ack_deadline_seconds = static_cast<int32_t>(reader.value());
    } else if (reader.field() == 6 && is_bytes) {
      request.client_id = reader.bytes();
    } else if (reader.field() == 7 && is_varint) {
      request.max_outstanding_messages = static_cast<int64_t>(reader.value());
    } else if (reader.field() == 8 && is_varint) {
      request.max_outstanding_bytes = static_cast<int64_t>(reader.value());
    } else if (reader.field() == 10 && is_varint) {
      request.protocol_version = static_cast<int64_t>(reader.value());
    }
  }
  if (!reader.ok()) return UnreadableRequest("google.pubsub.v1.StreamingPullRequest");
  return request;
}

Status StreamingPullRequest::CheckFirst() const {
  if (subscription.empty()) {
    return InvalidArgument(
        "The first request of a StreamingPull stream must set the field subscription.");
  }
  if (stream_ack_deadline_seconds == 0) {
    return InvalidArgument(
        fmt::format("The first request of a StreamingPull stream must set the field "
                    "stream_ack_deadline_seconds to a value between {} and {}.",
                    kAckDeadlineMin, kAckDeadlineMax));
  }
  if (stream_ack_deadline_seconds < kAckDeadlineMin ||
      stream_ack_deadline_seconds > kAckDeadlineMax) {
    return BadAckDeadline(stream_ack_deadline_seconds, kAckDeadlineMin);
  }
  return CheckModifications(*this);
}

Status StreamingPullRequest::CheckLater() const {
  if (!subscription.empty()) return OnlyFirst("subscription");
  if (max_outstanding_messages != 0) return OnlyFirst("max_outstanding_messages");
  if (max_outstanding_bytes != 0) return OnlyFirst("max_outstanding_bytes");
  if (protocol_version != 0) return OnlyFirst("protocol_version");
  if (stream_ack_deadline_seconds != 0 && (stream_ack_deadline_seconds < kAckDeadlineMin ||
                                           stream_ack_deadline_seconds > kAckDeadlineMax)) {
    return BadAckDeadline(stream_ack_deadline_seconds, kAckDeadlineMin);
  }
  return CheckModifications(*this);
}

}  // namespace millrace::api
