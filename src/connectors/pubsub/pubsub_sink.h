// The native Pub/Sub sink over the broker of the same process: what a bundle wrote is stored once,
// however often it is sent.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "connectors/pubsub/settings.h"
#include "engine/sink.h"
#include "pubsub/broker.h"

namespace millrace::connectors::pubsub {

// Elements are serialised PubsubMessages as bytes:v1; with an empty topic KVs of topic name and
// such bytes.
std::unique_ptr<engine::Sink> MakePubSubSink(WriteSettings settings,
                                             millrace::pubsub::Broker* broker,
                                             std::function<void(Status warning)> report);

}  // namespace millrace::connectors::pubsub
