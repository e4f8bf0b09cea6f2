#include "planner/splittable.h"

#include "fmt/format.h"
#include "planner/urns.h"

namespace millrace::planner {

bool IsSplittable(const pipe::PTransform& transform) {
  if (transform.spec().urn() != urns::kParDo) return false;
  pipe::ParDoPayload payload;
  return payload.ParseFromString(transform.spec().payload()) &&
         !payload.restriction_coder_id().empty();
}

StatusOr<std::vector<std::string>> ExpandSplittable(Graph& graph, const std::string& id) {
  pipe::Components& components = graph.components;
  const pipe::PTransform pardo = components.transforms().at(id);
  pipe::ParDoPayload payload;
  payload.ParseFromString(pardo.spec().payload());
  std::string main_name, main_collection;
  for (const auto& [name, collection] : pardo.inputs()) {
    if (payload.side_inputs().contains(name)) continue;
    main_name = name;
    main_collection = collection;
  }
  if (main_collection.empty())
    return InvalidArgument(fmt::format("transform {} has no main input", id));

  auto coder = [&](const std::string& made_id, const char* urn, std::vector<std::string> parts) {
    pipe::Coder made;
    made.mutable_spec()->set_urn(urn);
    for (const std::string& part : parts) made.add_component_coder_ids(part);
    (*components.mutable_coders())[made_id] = std::move(made);
    return made_id;
  };
  const std::string element = components.pcollections().at(main_collection).coder_id();
  const std::string paired_coder =
      coder(id + "/paired_coder", "beam:coder:kv:v1", {element, payload.restriction_coder_id()});
  const std::string size_coder = coder(id + "/size_coder", "beam:coder:double:v1", {});
  const std::string sized_coder =
      coder(id + "/sized_coder", "beam:coder:kv:v1", {paired_coder, size_coder});

  auto collection = [&](const char* name, const std::string& coder_id) {
    pipe::PCollection made = components.pcollections().at(main_collection);
    made.set_unique_name(fmt::format("{}.{}", pardo.unique_name(), name));
    made.set_coder_id(coder_id);
    std::string made_id = fmt::format("{}/{}", id, name);
    (*components.mutable_pcollections())[made_id] = std::move(made);
    return made_id;
  };
  const std::string paired = collection("paired", paired_coder);
  const std::string sized = collection("sized", sized_coder);

  std::vector<std::string> ids;
  auto part = [&](const char* name, const char* urn, const std::string& from,
                  const std::string* to) {
    pipe::PTransform made = pardo;
    made.set_unique_name(fmt::format("{}/{}", pardo.unique_name(), name));
    made.mutable_spec()->set_urn(urn);
    (*made.mutable_inputs())[main_name] = from;
    if (to != nullptr) {
      made.clear_outputs();
      (*made.mutable_outputs())["out"] = *to;
    }
    std::string made_id = fmt::format("{}/{}", id, name);
    (*components.mutable_transforms())[made_id] = std::move(made);
    graph.original[made_id] = id;
    ids.push_back(made_id);
  };
  part("PairWithRestriction", urns::kPairWithRestriction, main_collection, &paired);
  part("SplitAndSize", urns::kSplitAndSize, paired, &sized);
  part("ProcessSized", urns::kProcessSized, sized, nullptr);
  return ids;
}

}  // namespace millrace::planner
