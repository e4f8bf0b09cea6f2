#include "planner/combine_lifting.h"

#include <algorithm>

#include "fmt/format.h"
#include "planner/urns.h"

namespace millrace::planner {
namespace {

bool TriggerAllows(const pipe::Trigger& trigger) {
  switch (trigger.trigger_case()) {
    case pipe::Trigger::kDefault:
    case pipe::Trigger::kAlways:
    case pipe::Trigger::kNever:
    case pipe::Trigger::kAfterProcessingTime:
    case pipe::Trigger::kAfterSynchronizedProcessingTime:
      return true;
    case pipe::Trigger::kElementCount:
      return trigger.element_count().element_count() <= 1;
    case pipe::Trigger::kAfterEndOfWindow:
      return (!trigger.after_end_of_window().has_early_firings() ||
              TriggerAllows(trigger.after_end_of_window().early_firings())) &&
             (!trigger.after_end_of_window().has_late_firings() ||
              TriggerAllows(trigger.after_end_of_window().late_firings()));
    case pipe::Trigger::kAfterAny:
      return std::ranges::all_of(trigger.after_any().subtriggers(), TriggerAllows);
    case pipe::Trigger::kRepeat:
      return TriggerAllows(trigger.repeat().subtrigger());
    default:
      return false;
  }
}

// The KV coder of `collection`; its key component.
StatusOr<std::string> KeyCoderOf(const pipe::Components& components,
                                 const std::string& collection) {
  auto it = components.pcollections().find(collection);
  if (it == components.pcollections().end())
    return InvalidArgument(fmt::format("no PCollection {}", collection));
  auto coder = components.coders().find(it->second.coder_id());
  if (coder == components.coders().end() || coder->second.component_coder_ids_size() != 2) {
    return InvalidArgument(
        fmt::format("PCollection {} goes into a combine and has no KV coder", collection));
  }
  return coder->second.component_coder_ids(0);
}

std::string AddCoder(pipe::Components& components, std::string id, const char* urn,
                     std::vector<std::string> parts) {
  pipe::Coder coder;
  coder.mutable_spec()->set_urn(urn);
  for (std::string& part : parts) coder.add_component_coder_ids(std::move(part));
  (*components.mutable_coders())[id] = std::move(coder);
  return id;
}

}  // namespace

bool CanLift(const pipe::Components& components, const pipe::PTransform& combine) {
  if (combine.inputs_size() != 1 || combine.outputs_size() != 1 ||
      combine.subtransforms_size() == 0)
    return false;
  auto input = components.pcollections().find(combine.inputs().begin()->second);
  if (input == components.pcollections().end()) return false;
  auto strategy = components.windowing_strategies().find(input->second.windowing_strategy_id());
  if (strategy == components.windowing_strategies().end()) return false;
  pipe::CombinePayload payload;
  if (!payload.ParseFromString(combine.spec().payload()) ||
      !components.coders().contains(payload.accumulator_coder_id())) {
    return false;
  }
  return strategy->second.merge_status() == pipe::MergeStatus::NON_MERGING &&
         TriggerAllows(strategy->second.trigger());
}

StatusOr<std::vector<std::string>> LiftCombine(Graph& graph, const std::string& id) {
  pipe::Components& components = graph.components;
  const pipe::PTransform combine = components.transforms().at(id);
  const std::string in = combine.inputs().begin()->second;
  const std::string out = combine.outputs().begin()->second;
  pipe::CombinePayload payload;
  payload.ParseFromString(combine.spec().payload());
  MR_ASSIGN_OR_RETURN(const std::string key, KeyCoderOf(components, in));
  const std::string& accumulator = payload.accumulator_coder_id();
  const std::string kv =
      AddCoder(components, id + "/accumulators_coder", "beam:coder:kv:v1", {key, accumulator});
  const std::string list =
      AddCoder(components, id + "/accumulator_list_coder", "beam:coder:iterable:v1", {accumulator});
  const std::string grouped =
      AddCoder(components, id + "/grouped_coder", "beam:coder:kv:v1", {key, list});

  auto collection = [&](const char* name, const std::string& coder) {
    pipe::PCollection made = components.pcollections().at(in);
    made.set_unique_name(fmt::format("{}.{}", combine.unique_name(), name));
    made.set_coder_id(coder);
    std::string made_id = fmt::format("{}/{}", id, name);
    (*components.mutable_pcollections())[made_id] = std::move(made);
    return made_id;
  };
  const std::string precombined = collection("precombined", kv);
  const std::string shuffled = collection("grouped", grouped);
  const std::string merged = collection("merged", kv);

  std::vector<std::string> ids;
  auto part = [&](const char* name, const char* urn, const std::string& from,
                  const std::string& to) {
    pipe::PTransform made;
    made.set_unique_name(fmt::format("{}/{}", combine.unique_name(), name));
    made.mutable_spec()->set_urn(urn);
    if (std::string_view(urn) != urns::kGroupByKey) {
      made.mutable_spec()->set_payload(combine.spec().payload());
      made.set_environment_id(combine.environment_id());
    }
    (*made.mutable_inputs())["in"] = from;
    (*made.mutable_outputs())["out"] = to;
    std::string made_id = fmt::format("{}/{}", id, name);
    (*components.mutable_transforms())[made_id] = std::move(made);
    graph.original[made_id] = id;
    ids.push_back(made_id);
  };
  part("Precombine", urns::kPrecombine, in, precombined);
  part("Group", urns::kGroupByKey, precombined, shuffled);
  part("Merge", urns::kMergeAccumulators, shuffled, merged);
  part("Extract", urns::kExtractOutputs, merged, out);
  return ids;
}

}  // namespace millrace::planner
