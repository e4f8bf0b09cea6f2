// Checks of single values that several resources share, with the sentences of the service
// (spec/pubsub 1.2, 2.1).
#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/map.h>

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace millrace::pubsub {

// As error texts print them: 9m59s, 24h, 1.5s, 0s.
std::string DurationText(const google::protobuf::Duration& duration);

// Valid and within what a Duration of ours holds; `name` as in the texts, e.g. "message retention
// duration".
Status CheckDurationRange(std::string_view name, const google::protobuf::Duration& duration,
                          const google::protobuf::Duration& min,
                          const google::protobuf::Duration& max);
Status CheckDurationMin(std::string_view name, const google::protobuf::Duration& duration,
                        const google::protobuf::Duration& min);
Duration ToDuration(const google::protobuf::Duration& duration);
google::protobuf::Duration ToProto(Duration duration);

Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels);

// "You have passed an invalid argument to the service (argument=…)."
Status InvalidArgumentNamed(std::string_view argument);
// A setting whose behaviour this server lacks: refused, never stored and ignored.
Status UnsupportedField(std::string_view resource, std::string_view field);

}  // namespace millrace::pubsub
