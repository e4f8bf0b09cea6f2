#include "planner/descriptor.h"

#include <set>

#include "fmt/format.h"
#include "planner/urns.h"

namespace millrace::planner {
namespace {

std::string PortPayload(const std::string& coder_id) {
  fn::RemoteGrpcPort port;
  port.set_coder_id(coder_id);
  return port.SerializeAsString();
}

class DescriptorBuilder {
 public:
  DescriptorBuilder(const Graph& graph, WireCoders& coders, const FusedStage& fused,
                    const StageEnds& ends)
      : graph_(graph), coders_(coders), fused_(fused), ends_(ends) {}

  StatusOr<ExecutableStage> Build(engine::StageId id) {
    stage_.id = id;
    stage_.environment = fused_.environment;
    stage_.descriptor.set_id(fmt::format("stage-{}", id.value));
    for (size_t leaf : fused_.leaves) MR_RETURN_IF_ERROR(AddTransform(graph_.leaves[leaf]));
    MR_RETURN_IF_ERROR(AddSource());
    for (size_t i = 0; i < ends_.sinks.size(); ++i) MR_RETURN_IF_ERROR(AddSink(ends_.sinks[i], i));
    // All of them: what a transform's payload refers to is known to the SDK alone.
    *stage_.descriptor.mutable_windowing_strategies() = graph_.components.windowing_strategies();
    *stage_.descriptor.mutable_coders() = graph_.components.coders();
    *stage_.descriptor.mutable_environments() = graph_.components.environments();
    return std::move(stage_);
  }

 private:
  Status AddTransform(const Leaf& leaf) {
    pipe::PTransform transform = graph_.components.transforms().at(leaf.id);
    transform.clear_subtransforms();
    for (const std::string& input : leaf.inputs) AddCollection(input);
    for (const std::string& output : leaf.outputs) AddCollection(output);
    for (const SideInputRef& side : leaf.side_inputs)
      MR_RETURN_IF_ERROR(AddCuttable(side.collection));
    stage_.uses_state |= leaf.stateful || !leaf.side_inputs.empty();
    if (leaf.stateful) MR_RETURN_IF_ERROR(RewriteTimers(leaf, &transform));
    (*stage_.descriptor.mutable_transforms())[leaf.id] = std::move(transform);
    return OkStatus();
  }

  void AddCollection(const std::string& id) {
    if (stage_.descriptor.pcollections().contains(id)) return;
    (*stage_.descriptor.mutable_pcollections())[id] = graph_.components.pcollections().at(id);
  }

  // The harness reads it from the runner: its coder is the cuttable one.
  Status AddCuttable(const std::string& id) {
    AddCollection(id);
    pipe::PCollection& collection = (*stage_.descriptor.mutable_pcollections())[id];
    MR_ASSIGN_OR_RETURN(std::string coder,
                        coders_.Cuttable(graph_.components.pcollections().at(id).coder_id()));
    collection.set_coder_id(std::move(coder));
    return OkStatus();
  }

  // Timers cross with the same key bytes as elements do.
  Status RewriteTimers(const Leaf& leaf, pipe::PTransform* transform) {
    pipe::ParDoPayload payload;
    payload.ParseFromString(transform->spec().payload());
    std::set<std::string> families;
    for (const auto& [family, spec] : payload.timer_family_specs()) families.insert(family);
    for (const std::string& family : families) {
      pipe::TimerFamilySpec& spec = (*payload.mutable_timer_family_specs())[family];
      MR_ASSIGN_OR_RETURN(std::string coder, coders_.Cuttable(spec.timer_family_coder_id()));
      spec.set_timer_family_coder_id(coder);
      MR_ASSIGN_OR_RETURN(coders::CoderPtr tree, coders_.Tree(coder));
      if (tree->kind != coders::Coder::Kind::kTimer) {
        return InvalidArgument(
            fmt::format("timer family {} of {} has no timer coder", family, leaf.id));
      }
      stage_.timers.push_back({leaf.id, family, std::move(tree)});
    }
    transform->mutable_spec()->set_payload(payload.SerializeAsString());
    return OkStatus();
  }

  Status AddSource() {
    MR_RETURN_IF_ERROR(AddCuttable(ends_.input));
    const pipe::PCollection& collection = graph_.components.pcollections().at(ends_.input);
    MR_ASSIGN_OR_RETURN(std::string coder, coders_.Windowed(collection.coder_id(),
                                                            collection.windowing_strategy_id()));
    stage_.source.transform = "source";
    MR_ASSIGN_OR_RETURN(stage_.source.windowed_coder, coders_.Tree(coder));
    pipe::PTransform transform;
    transform.set_unique_name("source");
    transform.mutable_spec()->set_urn(urns::kRunnerSource);
    transform.mutable_spec()->set_payload(PortPayload(coder));
    (*transform.mutable_outputs())["out"] = ends_.input;
    (*stage_.descriptor.mutable_transforms())[stage_.source.transform] = std::move(transform);
    return OkStatus();
  }

  Status AddSink(const SinkEnd& end, size_t index) {
    Port port;
    port.transform = fmt::format("sink-{}", index);
    port.collection = end.id;
    MR_ASSIGN_OR_RETURN(port.windowed_coder, coders_.Tree(end.windowed_coder));
    pipe::PTransform transform;
    transform.set_unique_name(port.transform);
    transform.mutable_spec()->set_urn(urns::kRunnerSink);
    transform.mutable_spec()->set_payload(PortPayload(end.windowed_coder));
    (*transform.mutable_inputs())["in"] = end.collection;
    (*stage_.descriptor.mutable_transforms())[port.transform] = std::move(transform);
    stage_.sinks.push_back(std::move(port));
    return OkStatus();
  }

  const Graph& graph_;
  WireCoders& coders_;
  const FusedStage& fused_;
  const StageEnds& ends_;
  ExecutableStage stage_;
};

}  // namespace

StatusOr<ExecutableStage> MakeExecutableStage(const Graph& graph, WireCoders& coders,
                                              const FusedStage& fused, const StageEnds& ends,
                                              engine::StageId id) {
  return DescriptorBuilder(graph, coders, fused, ends).Build(id);
}

}  // namespace millrace::planner
