// google.pubsub.v1.Publisher over the broker.
#pragma once

#include "api/method_table.h"
#include "pubsub/broker.h"

namespace millrace::api {

// Adds the publisher's methods to `table`; `broker` outlives the table.
void AddPublisherMethods(pubsub::Broker& broker, MethodTable& table);

}  // namespace millrace::api
