// Deliveries as google.pubsub.v1.ReceivedMessage frames. The stored message goes in unchanged:
// copied when it is small, by reference when it is large.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string_view>
#include <vector>

#include "pubsub/types.h"

namespace millrace::api {

// Field 1 of PullResponse and of StreamingPullResponse alike, once per delivery, followed by `tail`
// (further fields of the response, encoded).
grpc::ByteBuffer EncodeDeliveries(const std::vector<pubsub::Delivery>& deliveries,
                                  std::string_view tail);

}  // namespace millrace::api
