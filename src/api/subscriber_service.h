// google.pubsub.v1.Subscriber over the broker. Its stream is in streaming_pull_session.h.
#pragma once

#include "api/method_table.h"
#include "pubsub/broker.h"

namespace millrace::api {

// Adds the subscriber's unary methods to `table`; `broker` outlives the table.
void AddSubscriberMethods(pubsub::Broker& broker, MethodTable& table);

// How long an empty pull waits: 25 s, or one second less than its caller does.
Duration PullWait(const CallOptions& options);

}  // namespace millrace::api
