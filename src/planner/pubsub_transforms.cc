#include "planner/pubsub_transforms.h"

#include <map>

#include "planner/urns.h"

namespace millrace::planner {
namespace {

constexpr char kWriteDoFn[] = "apache_beam.io.gcp.pubsub._PubSubWriteDoFn";

// Display data by key; the first of each key.
std::map<std::string, std::string> Labels(const pipe::PTransform& transform) {
  std::map<std::string, std::string> labels;
  for (const pipe::DisplayData& data : transform.display_data()) {
    pipe::LabelledPayload payload;
    if (!payload.ParseFromString(data.payload())) continue;
    const std::string& key = payload.key().empty() ? payload.label() : payload.key();
    if (payload.value_case() == pipe::LabelledPayload::kStringValue)
      labels.emplace(key, payload.string_value());
  }
  return labels;
}

}  // namespace

std::optional<std::string> PythonPubSubWrite(const pipe::PTransform& leaf,
                                             const pipe::PTransform* parent) {
  if (leaf.spec().urn() != urns::kParDo) return std::nullopt;
  std::map<std::string, std::string> labels = Labels(leaf);
  if (labels["fn"] != kWriteDoFn) return std::nullopt;
  if (parent != nullptr) labels.merge(Labels(*parent));
  pipe::PubSubWritePayload payload;
  payload.set_topic(labels["topic"]);
  payload.set_id_attribute(labels["id_label"]);
  payload.set_timestamp_attribute(labels["timestamp_attribute"]);
  if (payload.topic().empty()) return std::nullopt;
  return payload.SerializeAsString();
}

}  // namespace millrace::planner
