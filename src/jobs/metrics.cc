#include "jobs/metrics.h"

namespace millrace::jobs {
namespace {

constexpr char kTransformLabel[] = "PTRANSFORM";

std::string NameOf(const std::string& transform, const planner::PlannedPipeline& pipeline) {
  std::string id = transform;
  if (auto it = pipeline.original_transforms.find(id); it != pipeline.original_transforms.end())
    id = it->second;
  auto name = pipeline.unique_names.find(id);
  return name == pipeline.unique_names.end() ? id : name->second;
}

void Convert(const std::vector<engine::Metric>& metrics, const planner::PlannedPipeline& pipeline,
             google::protobuf::RepeatedPtrField<pipe::MonitoringInfo>* out) {
  for (const engine::Metric& metric : metrics) {
    pipe::MonitoringInfo* info = out->Add();
    info->set_urn(metric.urn);
    info->set_type(metric.type);
    info->set_payload(metric.payload);
    for (const auto& [label, value] : metric.labels) {
      (*info->mutable_labels())[label] = label == kTransformLabel ? NameOf(value, pipeline) : value;
    }
  }
}

}  // namespace

api::MetricResults ToMetricResults(const std::vector<engine::Metric>& attempted,
                                   const std::vector<engine::Metric>& committed,
                                   const planner::PlannedPipeline& pipeline) {
  api::MetricResults results;
  Convert(attempted, pipeline, results.mutable_attempted());
  Convert(committed, pipeline, results.mutable_committed());
  return results;
}

}  // namespace millrace::jobs
