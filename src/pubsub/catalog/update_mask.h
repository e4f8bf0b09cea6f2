// Update masks over any resource (spec/pubsub 2.4): paths in snake_case, nested ones too, all or
// none applied.
#pragma once

#include <google/protobuf/field_mask.pb.h>
#include <google/protobuf/message.h>

#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace::pubsub {

struct MaskRules {
  std::string_view request;                 // "UpdateTopicRequest"
  std::string_view resource;                // "Topic"
  std::vector<std::string_view> immutable;  // first segments that may not be named
};

// Sets every named field of `to` to its value in `from`; one that is unset there is cleared. Both
// are of one type.
Status ApplyUpdateMask(const MaskRules& rules, const google::protobuf::FieldMask& mask,
                       const google::protobuf::Message& from, google::protobuf::Message* to);

}  // namespace millrace::pubsub
