#include "planner/graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "planner/combine_lifting.h"
#include "planner/pubsub_transforms.h"
#include "planner/splittable.h"
#include "planner/urns.h"

namespace millrace::planner {
namespace {

bool IsNativeLeaf(const std::string& urn) {
  static const std::set<std::string> kLeaves = {
      urns::kImpulse,    urns::kGroupByKey,  urns::kFlatten,           urns::kTestStream,
      urns::kPubSubRead, urns::kPubSubWrite, urns::kPubSubWriteDynamic};
  return kLeaves.contains(urn);
}

bool IsReshuffle(const pipe::PTransform& transform) {
  const std::string& urn = transform.spec().urn();
  return (urn == urns::kReshuffle || urn == urns::kRedistributeByKey ||
          urn == urns::kRedistributeArbitrarily) &&
         transform.inputs_size() == 1 && transform.outputs_size() == 1;
}

std::set<std::string> Values(const google::protobuf::Map<std::string, std::string>& map) {
  std::set<std::string> values;
  for (const auto& [name, collection] : map) values.insert(collection);
  return values;
}

// All outputs are among the inputs: nothing happens here. A ParDo without outputs works by its side
// effects.
bool IsIdentity(const pipe::PTransform& transform) {
  if (transform.spec().urn() == urns::kParDo && transform.outputs().empty()) return false;
  const std::set<std::string> inputs = Values(transform.inputs());
  return std::ranges::all_of(Values(transform.outputs()),
                             [&](const std::string& output) { return inputs.contains(output); });
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const pipe::Pipeline& pipeline) : roots_(pipeline.root_transform_ids()) {
    graph_.components = pipeline.components();
  }

  StatusOr<Graph> Build() {
    for (const std::string& root : roots_) MR_RETURN_IF_ERROR(Visit(root, nullptr, 0));
    MR_RETURN_IF_ERROR(Sort());
    return std::move(graph_);
  }

 private:
  Status Visit(const std::string& id, const pipe::PTransform* parent, int depth) {
    auto it = graph_.components.transforms().find(id);
    if (it == graph_.components.transforms().end()) {
      return InvalidArgument(fmt::format("transform {} is named but not in the pipeline", id));
    }
    if (depth > 200) return InvalidArgument(fmt::format("transform {} is nested too deeply", id));
    const pipe::PTransform transform = it->second;  // expansion changes the map
    const std::string& urn = transform.spec().urn();
    if (urn == urns::kRead && transform.subtransforms().empty()) {  // Python's has its expansion
      return Unimplemented(
          fmt::format("transform {} is a deprecated primitive Read; leave out the experiment "
                      "use_deprecated_read",
                      transform.unique_name()));
    }
    if (urn == urns::kTestStream) {
      return Unimplemented(
          fmt::format("transform {} is a TestStream, which this runner does not execute",
                      transform.unique_name()));
    }
    if (IsNativeLeaf(urn) || IsReshuffle(transform)) return AddLeaf(id, transform);
    if (urn == urns::kCombinePerKey && CanLift(graph_.components, transform)) {
      return AddAll(LiftCombine(graph_, id));
    }
    if (transform.subtransforms_size() > 0) {
      for (const std::string& sub : transform.subtransforms()) {
        MR_RETURN_IF_ERROR(Visit(sub, &transform, depth + 1));
      }
      return OkStatus();
    }
    if (IsIdentity(transform)) return OkStatus();
    return VisitLeaf(id, transform, parent);
  }

  Status VisitLeaf(const std::string& id, const pipe::PTransform& transform,
                   const pipe::PTransform* parent) {
    if (auto write = PythonPubSubWrite(transform, parent)) {
      Leaf leaf{.id = id, .kind = LeafKind::kPubSubWrite, .native_spec = std::move(*write)};
      for (const auto& [name, collection] : transform.inputs()) leaf.inputs.push_back(collection);
      return Add(std::move(leaf));
    }
    if (IsSplittable(transform)) return AddAll(ExpandSplittable(graph_, id));
    return AddLeaf(id, transform);
  }

  Status AddAll(StatusOr<std::vector<std::string>> ids) {
    if (!ids.ok()) return ids.status();
    for (const std::string& id : *ids) {
      MR_RETURN_IF_ERROR(AddLeaf(id, graph_.components.transforms().at(id)));
    }
    return OkStatus();
  }

  Status AddLeaf(const std::string& id, const pipe::PTransform& transform) {
    Leaf leaf{.id = id, .environment = transform.environment_id()};
    MR_RETURN_IF_ERROR(Classify(transform, &leaf));
    std::set<std::string> sides;
    if (leaf.kind == LeafKind::kHarness) {
      MR_RETURN_IF_ERROR(ReadParDo(transform, &leaf, &sides));
    }
    for (const auto& name : SortedKeys(transform.inputs())) {
      const std::string& collection = transform.inputs().at(name);
      if (sides.contains(name)) {
        leaf.side_inputs.push_back({name, collection});
      } else {
        leaf.inputs.push_back(collection);
      }
    }
    for (const auto& name : SortedKeys(transform.outputs())) {
      leaf.outputs.push_back(transform.outputs().at(name));
    }
    return Add(std::move(leaf));
  }

  static Status Classify(const pipe::PTransform& transform, Leaf* leaf) {
    const std::string& urn = transform.spec().urn();
    if (urn == urns::kImpulse) {
      leaf->kind = LeafKind::kImpulse;
    } else if (urn == urns::kGroupByKey) {
      leaf->kind = LeafKind::kGroupByKey;
    } else if (urn == urns::kFlatten || IsReshuffle(transform)) {
      leaf->kind = LeafKind::kBorder;
    } else if (urn == urns::kPubSubRead) {
      leaf->kind = LeafKind::kPubSubRead;
      leaf->native_spec = transform.spec().payload();
    } else if (urn == urns::kPubSubWrite) {
      leaf->kind = LeafKind::kPubSubWrite;
      leaf->native_spec = transform.spec().payload();
    } else if (urn == urns::kPubSubWriteDynamic) {
      leaf->kind = LeafKind::kPubSubWriteDynamic;
      leaf->native_spec = transform.spec().payload();
    } else if (transform.environment_id().empty()) {
      return Unimplemented(
          fmt::format("transform {} ({}) has no environment and is none that the runner executes",
                      transform.unique_name(), urn.empty() ? "no URN" : urn));
    }
    return OkStatus();
  }

  static Status ReadParDo(const pipe::PTransform& transform, Leaf* leaf,
                          std::set<std::string>* sides) {
    const std::string& urn = transform.spec().urn();
    if (urn != urns::kParDo && urn != urns::kPairWithRestriction && urn != urns::kSplitAndSize &&
        urn != urns::kProcessSized) {
      return OkStatus();
    }
    pipe::ParDoPayload payload;
    if (!payload.ParseFromString(transform.spec().payload())) {
      return InvalidArgument(
          fmt::format("transform {}: malformed ParDoPayload", transform.unique_name()));
    }
    for (const auto& [name, side] : payload.side_inputs()) sides->insert(name);
    leaf->processes_restrictions = urn == urns::kProcessSized;
    leaf->stateful = urn == urns::kParDo &&
                     (payload.state_specs_size() > 0 || payload.timer_family_specs_size() > 0);
    if (payload.requires_time_sorted_input()) {
      return Unimplemented(
          fmt::format("transform {} requires time-sorted input, which this runner does not give",
                      transform.unique_name()));
    }
    return OkStatus();
  }

  Status Add(Leaf leaf) {
    if (leaf.kind != LeafKind::kBorder && leaf.kind != LeafKind::kImpulse &&
        leaf.kind != LeafKind::kPubSubRead && leaf.inputs.size() != 1) {
      return InvalidArgument(fmt::format("transform {} has {} main inputs, must have one", leaf.id,
                                         leaf.inputs.size()));
    }
    graph_.leaves.push_back(std::move(leaf));
    return OkStatus();
  }

  static std::vector<std::string> SortedKeys(
      const google::protobuf::Map<std::string, std::string>& map) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : map) keys.push_back(key);
    std::ranges::sort(keys);
    return keys;
  }

  // Kahn's algorithm; among leaves that are ready the first in pipeline order goes first.
  Status Sort() {
    std::map<std::string, size_t> made_by;
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      for (const std::string& output : graph_.leaves[i].outputs) made_by[output] = i;
    }
    std::vector<std::set<size_t>> needs(graph_.leaves.size());
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      auto need = [&](const std::string& collection) -> Status {
        auto it = made_by.find(collection);
        if (it == made_by.end()) {
          return InvalidArgument(fmt::format("transform {} reads {}, which nothing produces",
                                             graph_.leaves[i].id, collection));
        }
        needs[i].insert(it->second);
        return OkStatus();
      };
      for (const std::string& input : graph_.leaves[i].inputs) MR_RETURN_IF_ERROR(need(input));
      for (const SideInputRef& side : graph_.leaves[i].side_inputs)
        MR_RETURN_IF_ERROR(need(side.collection));
    }
    std::vector<Leaf> sorted;
    std::vector<bool> done(graph_.leaves.size());
    while (sorted.size() < graph_.leaves.size()) {
      bool moved = false;
      for (size_t i = 0; i < graph_.leaves.size(); ++i) {
        if (done[i] || std::ranges::any_of(needs[i], [&](size_t n) { return !done[n]; })) continue;
        done[i] = moved = true;
        sorted.push_back(graph_.leaves[i]);
      }
      if (!moved) return InvalidArgument("the pipeline has a cycle");
    }
    graph_.leaves = std::move(sorted);
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      for (const std::string& output : graph_.leaves[i].outputs) graph_.producer[output] = i;
    }
    return OkStatus();
  }

  const google::protobuf::RepeatedPtrField<std::string> roots_;
  Graph graph_;
};

}  // namespace

StatusOr<Graph> MakeGraph(const pipe::Pipeline& pipeline) { return GraphBuilder(pipeline).Build(); }

}  // namespace millrace::planner
