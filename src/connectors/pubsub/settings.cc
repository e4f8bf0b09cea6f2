#include "connectors/pubsub/settings.h"

#include <charconv>
#include <string_view>

#include "fmt/format.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::connectors::pubsub {

namespace pipe = org::apache::beam::model::pipeline::v1;

StatusOr<std::string> ResourceName(const std::string& name, const char* collection) {
  if (name.starts_with("projects/")) return name;
  const std::string java = fmt::format("/{}/", collection);
  if (name.starts_with(java)) {
    const std::string rest = name.substr(java.size());
    const size_t slash = rest.find('/');
    if (slash != std::string::npos && slash > 0 && slash + 1 < rest.size()) {
      return fmt::format("projects/{}/{}/{}", rest.substr(0, slash), collection,
                         rest.substr(slash + 1));
    }
  }
  return InvalidArgument(
      fmt::format("\"{}\" is no name of the form projects/PROJECT/{}/ID", name, collection));
}

StatusOr<ReadSettings> ParseReadSettings(const std::string& payload) {
  pipe::PubSubReadPayload proto;
  if (!proto.ParseFromString(payload)) return InvalidArgument("malformed PubSubReadPayload");
  if (proto.topic().empty() == proto.subscription().empty()) {
    return InvalidArgument("a Pub/Sub read names either a topic or a subscription");
  }
  ReadSettings settings;
  if (!proto.topic().empty()) {
    MR_ASSIGN_OR_RETURN(settings.topic, ResourceName(proto.topic(), "topics"));
  } else {
    MR_ASSIGN_OR_RETURN(settings.subscription, ResourceName(proto.subscription(), "subscriptions"));
  }
  settings.timestamp_attribute = proto.timestamp_attribute();
  settings.id_attribute = proto.id_attribute();
  settings.with_attributes = proto.with_attributes();
  return settings;
}

StatusOr<WriteSettings> ParseWriteSettings(const std::string& payload, bool dynamic) {
  pipe::PubSubWritePayload proto;
  if (!proto.ParseFromString(payload)) return InvalidArgument("malformed PubSubWritePayload");
  WriteSettings settings;
  if (!dynamic) {
    MR_ASSIGN_OR_RETURN(settings.topic, ResourceName(proto.topic(), "topics"));
  }
  settings.timestamp_attribute = proto.timestamp_attribute();
  settings.id_attribute = proto.id_attribute();
  return settings;
}

StatusOr<Duration> ParseDuration(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, end - rest);
  if (error == std::errc() && number >= 0 && number < 1'000'000'000) {
    if (unit == "ms") return Duration(std::chrono::milliseconds(number));
    if (unit == "s") return Duration(std::chrono::seconds(number));
    if (unit == "m") return Duration(std::chrono::minutes(number));
  }
  return InvalidArgument(fmt::format("\"{}\" is no duration such as 500ms, 10s or 2m", text));
}

}  // namespace millrace::connectors::pubsub
