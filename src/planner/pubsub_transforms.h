// Recognises Pub/Sub transforms that carry no URN of their own.
#pragma once

#include <optional>
#include <string>

#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::planner {

namespace pipe = org::apache::beam::model::pipeline::v1;

// Python's WriteToPubSub ends in a ParDo with a publishing DoFn, told by its display data; topic,
// id label and timestamp attribute stand in the display data of its parent. Returns a serialised
// PubSubWritePayload for the native sink.
std::optional<std::string> PythonPubSubWrite(const pipe::PTransform& leaf,
                                             const pipe::PTransform* parent);

}  // namespace millrace::planner
