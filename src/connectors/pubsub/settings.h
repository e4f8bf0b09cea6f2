// Settings of native Pub/Sub transforms, read from the pipeline's payloads and the job's service
// options.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace millrace::connectors::pubsub {

struct ReadSettings {
  std::string topic, subscription;  // one of them; names in the form projects/P/…
  std::string timestamp_attribute, id_attribute;
  bool with_attributes = false;  // elements are whole PubsubMessages, else the data alone
  Duration band = std::chrono::seconds(10);  // how far events may be out of order (DESIGN 6)
};

struct WriteSettings {
  std::string topic;  // empty: each element names its own (pubsub_write:v2)
  std::string timestamp_attribute, id_attribute;
};

// From a serialised PubSubReadPayload / PubSubWritePayload. Both ways to write names are taken:
// projects/P/topics/T, as Python and Go send them, and /topics/P/T, Java's.
StatusOr<ReadSettings> ParseReadSettings(const std::string& payload);
StatusOr<WriteSettings> ParseWriteSettings(const std::string& payload, bool dynamic);
StatusOr<std::string> ResourceName(const std::string& name, const char* collection);

// A duration of a service option: 500ms, 10s, 2m.
StatusOr<Duration> ParseDuration(const std::string& text);

}  // namespace millrace::connectors::pubsub
