#include "planner/validate.h"

#include <set>
#include <string>

#include "fmt/format.h"

namespace millrace::planner {
namespace {

namespace pipe = org::apache::beam::model::pipeline::v1;

// Requirements that the engine meets. stable_input: pending elements are durable and a retried
// bundle gets the same ones.
const std::set<std::string>& KnownRequirements() {
  static const std::set<std::string> kKnown = {
      "beam:requirement:pardo:stateful:v1", "beam:requirement:pardo:finalization:v1",
      "beam:requirement:pardo:stable_input:v1", "beam:requirement:pardo:splittable_dofn:v1",
      "beam:requirement:pardo:time_sorted_input:v1"};
  return kKnown;
}

}  // namespace

Status Validate(const pipe::Pipeline& pipeline) {
  for (const std::string& requirement : pipeline.requirements()) {
    if (!KnownRequirements().contains(requirement)) {
      return Unimplemented(
          fmt::format("the pipeline requires {}, which this runner does not offer", requirement));
    }
  }
  const pipe::Components& components = pipeline.components();
  for (const auto& [id, transform] : components.transforms()) {
    for (const auto* map : {&transform.inputs(), &transform.outputs()}) {
      for (const auto& [name, collection] : *map) {
        if (!components.pcollections().contains(collection)) {
          return InvalidArgument(fmt::format(
              "transform {} names PCollection {}, which is not in the pipeline", id, collection));
        }
      }
    }
    if (!transform.environment_id().empty() &&
        !components.environments().contains(transform.environment_id())) {
      return InvalidArgument(
          fmt::format("transform {} names environment {}, which is not in the pipeline", id,
                      transform.environment_id()));
    }
  }
  for (const auto& [id, collection] : components.pcollections()) {
    if (!components.windowing_strategies().contains(collection.windowing_strategy_id())) {
      return InvalidArgument(
          fmt::format("PCollection {} names windowing strategy {}, which is not in the pipeline",
                      id, collection.windowing_strategy_id()));
    }
  }
  return OkStatus();
}

}  // namespace millrace::planner
