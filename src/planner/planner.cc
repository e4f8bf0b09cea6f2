#include "planner/planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "planner/descriptor.h"
#include "planner/fuse.h"
#include "planner/graph.h"
#include "planner/strategy.h"
#include "planner/urns.h"
#include "planner/validate.h"
#include "planner/wire_coders.h"
#include "windowing/wire.h"

namespace millrace::planner {
namespace {

// Builds the engine's plan from fused stages. Producers that are no harness stages (Impulse,
// sources, GroupByKey) head the one stage that reads them; where several stages, side inputs or
// other runner steps read them, a stage of their own passes elements on.
class PlanBuilder {
 public:
  explicit PlanBuilder(Graph graph)
      : graph_(std::move(graph)), coders_(graph_.components), fused_(Fuse(graph_)) {}

  StatusOr<PlannedPipeline> Build() {
    CountReaders();
    MR_RETURN_IF_ERROR(MakeStages());
    MR_RETURN_IF_ERROR(ConnectInputs());
    MR_RETURN_IF_ERROR(Order());
    MR_RETURN_IF_ERROR(FillExecutables());
    return Finish();
  }

 private:
  // A stage under construction, with what it reads and writes in pipeline terms.
  struct Draft {
    engine::StageSpec spec;
    const FusedStage* fused = nullptr;  // kBundle
    std::string input;            // collection as the stage sees it; empty for heads without one
    bool reads_elements = false;  // its inputs are engine collections still to be connected
    bool needs_key = false;
    std::vector<SinkEnd> sinks;  // kBundle
  };

  // How many harness stages head directly on a collection, and whether something else reads it.
  void CountReaders() {
    for (const FusedStage& stage : fused_) stages_at_[stage.root_input].push_back(&stage);
    for (const Leaf& leaf : graph_.leaves) {
      if (leaf.kind != LeafKind::kHarness)
        other_readers_.insert(leaf.inputs.begin(), leaf.inputs.end());
      for (const SideInputRef& side : leaf.side_inputs) other_readers_.insert(side.collection);
    }
  }

  // The one fused stage that may take in the head (GroupByKey, source) that makes `collection`.
  const FusedStage* SoleHeadedStage(const std::string& collection) const {
    auto it = stages_at_.find(collection);
    if (it == stages_at_.end() || it->second.size() != 1 || it->second.front()->alone ||
        other_readers_.contains(collection)) {
      return nullptr;
    }
    return it->second.front();
  }

  Status MakeStages() {
    for (size_t i = 0; i < graph_.leaves.size(); ++i)
      MR_RETURN_IF_ERROR(MakeRunnerStage(graph_.leaves[i]));
    for (const FusedStage& stage : fused_) {
      if (headed_.contains(&stage)) continue;
      MR_RETURN_IF_ERROR(MakeHarnessStage(stage));
    }
    return OkStatus();
  }

  Status MakeRunnerStage(const Leaf& leaf) {
    switch (leaf.kind) {
      case LeafKind::kHarness:
      case LeafKind::kBorder:
      case LeafKind::kImpulse:  // each reader gets one of its own
        return OkStatus();
      case LeafKind::kGroupByKey:
        return MakeGroupStage(leaf);
      case LeafKind::kPubSubRead:
        return MakeSourceStage(leaf);
      case LeafKind::kPubSubWrite:
      case LeafKind::kPubSubWriteDynamic: {
        Draft draft = NewDraft(leaf);
        draft.spec.work = engine::Work::kSink;
        draft.spec.native_kind =
            leaf.kind == LeafKind::kPubSubWrite ? kPubSubWrite : kPubSubWriteDynamic;
        draft.spec.native_spec = leaf.native_spec;
        draft.input = leaf.inputs.front();
        draft.reads_elements = true;
        draft.needs_key = leaf.kind == LeafKind::kPubSubWriteDynamic;
        MR_ASSIGN_OR_RETURN(draft.spec.strategy, StrategyOf(draft.input));
        drafts_.push_back(std::move(draft));
        return OkStatus();
      }
    }
    return OkStatus();
  }

  Status MakeGroupStage(const Leaf& leaf) {
    const std::string& output = leaf.outputs.front();
    Draft draft = NewDraft(leaf);
    draft.spec.input = engine::InputKind::kGrouped;
    draft.input = leaf.inputs.front();
    draft.reads_elements = true;
    draft.needs_key = true;
    MR_ASSIGN_OR_RETURN(draft.spec.strategy, StrategyOf(draft.input));
    if (draft.spec.strategy.merging &&
        draft.spec.strategy.window_fn.kind == windowing::WindowFnKind::kCustom) {
      return Unimplemented(
          fmt::format("transform {} groups by merging windows of the user's own making, which this "
                      "runner cannot merge",
                      UniqueName(leaf.id)));
    }
    return AttachHead(std::move(draft), output);
  }

  Status MakeSourceStage(const Leaf& leaf) {
    Draft draft = NewDraft(leaf);
    draft.spec.input = engine::InputKind::kSource;
    draft.spec.native_kind = kPubSubRead;
    draft.spec.native_spec = leaf.native_spec;
    return AttachHead(std::move(draft), leaf.outputs.front());
  }

  // The head gets the only stage that reads it, or passes elements on.
  Status AttachHead(Draft draft, const std::string& output) {
    const FusedStage* stage = SoleHeadedStage(output);
    if (stage == nullptr) {
      draft.spec.work = engine::Work::kPass;
      passes_[output] = drafts_.size();
    } else {
      headed_.insert(stage);
      FillHarness(*stage, &draft);
    }
    drafts_.push_back(std::move(draft));
    return OkStatus();
  }

  Status MakeHarnessStage(const FusedStage& stage) {
    Draft draft;
    draft.input = stage.root_input;
    FillHarness(stage, &draft);
    MR_ASSIGN_OR_RETURN(draft.spec.strategy, StrategyOf(stage.root_input));
    const Leaf& root = graph_.leaves[stage.leaves.front()];
    draft.spec.keyed = root.stateful;
    draft.needs_key = root.stateful;
    if (graph_.ProducerOf(stage.root_input).kind == LeafKind::kImpulse) {
      draft.spec.input = engine::InputKind::kImpulse;
      draft.spec.impulse = ImpulseElement();
    } else {
      draft.reads_elements = true;
    }
    drafts_.push_back(std::move(draft));
    return OkStatus();
  }

  void FillHarness(const FusedStage& stage, Draft* draft) {
    draft->fused = &stage;
    draft->spec.work = engine::Work::kBundle;
    draft->spec.environment = stage.environment;
    for (size_t leaf : stage.leaves)
      draft->spec.transforms.push_back(UniqueName(graph_.leaves[leaf].id));
    draft->spec.name = draft->spec.transforms.front();
    for (size_t leaf : stage.leaves) {
      for (const std::string& output : graph_.leaves[leaf].outputs)
        made_by_[output] = drafts_.size();
    }
  }

  Draft NewDraft(const Leaf& leaf) {
    Draft draft;
    draft.spec.name = UniqueName(leaf.id);
    draft.spec.transforms.push_back(draft.spec.name);
    return draft;
  }

  // One element of bytes: empty, at the beginning of time, in the global window.
  static std::string ImpulseElement() {
    std::string element;
    const windowing::Window window = windowing::Window::Global();
    windowing::AppendHeader(element, windowing::kMinTimestamp, std::span(&window, 1),
                            windowing::Pane::NoFiring());
    element.push_back('\0');  // length 0
    return element;
  }

  Status ConnectInputs() {
    for (size_t i = 0; i < drafts_.size(); ++i) {
      if (drafts_[i].reads_elements) {
        MR_ASSIGN_OR_RETURN(auto inputs, Feed(drafts_[i].input, drafts_[i].needs_key));
        drafts_[i].spec.inputs = std::move(inputs);
      }
      if (drafts_[i].fused == nullptr) continue;
      for (size_t leaf : drafts_[i].fused->leaves)
        MR_RETURN_IF_ERROR(ConnectSideInputs(graph_.leaves[leaf], i));
    }
    return OkStatus();
  }

  Status ConnectSideInputs(const Leaf& leaf, size_t draft) {
    if (leaf.side_inputs.empty()) return OkStatus();
    pipe::ParDoPayload payload;
    payload.ParseFromString(graph_.components.transforms().at(leaf.id).spec().payload());
    for (const SideInputRef& side : leaf.side_inputs) {
      const std::string& access = payload.side_inputs().at(side.local_name).access_pattern().urn();
      if (access != urns::kIterableSideInput && access != urns::kMultimapSideInput) {
        return Unimplemented(fmt::format("side input {} of {} has access pattern {}",
                                         side.local_name, leaf.id, access));
      }
      const bool multimap = access == urns::kMultimapSideInput;
      MR_ASSIGN_OR_RETURN(engine::CollectionId collection,
                          SideCollection(side.collection, multimap));
      MR_ASSIGN_OR_RETURN(windowing::Strategy strategy, StrategyOf(side.collection));
      drafts_[draft].spec.side_inputs.push_back(
          {leaf.id, side.local_name, collection, multimap, std::move(strategy)});
    }
    return OkStatus();
  }

  // A side input is one collection: a flatten of several (or none) is a stage here.
  StatusOr<engine::CollectionId> SideCollection(const std::string& collection, bool keyed) {
    MR_ASSIGN_OR_RETURN(auto feeds, Feed(collection, keyed));
    if (feeds.size() == 1) return feeds.front();
    if (!passes_.contains(collection)) {
      Draft draft = NewDraft(graph_.ProducerOf(collection));
      draft.spec.work = engine::Work::kPass;
      draft.spec.inputs = std::move(feeds);
      MR_ASSIGN_OR_RETURN(draft.spec.strategy, StrategyOf(collection));
      passes_[collection] = drafts_.size();
      drafts_.push_back(std::move(draft));
    }
    MR_ASSIGN_OR_RETURN(engine::CollectionId id, Collection(collection, collection));
    collections_[id.value].keyed |= keyed;
    return id;
  }

  // Engine collections that together are `collection` as its reader sees it (through flattens and
  // reshuffles), in the reader's coder.
  StatusOr<std::vector<engine::CollectionId>> Feed(const std::string& collection, bool keyed) {
    std::vector<engine::CollectionId> result;
    MR_RETURN_IF_ERROR(Feed(collection, collection, keyed, 0, &result));
    return result;
  }

  Status Feed(const std::string& physical, const std::string& seen_as, bool keyed, int depth,
              std::vector<engine::CollectionId>* result) {
    if (depth > 200) return InvalidArgument("flattens are nested too deeply");
    const Leaf& producer = graph_.ProducerOf(physical);
    if (producer.kind == LeafKind::kBorder) {
      for (const std::string& input : producer.inputs) {
        MR_RETURN_IF_ERROR(Feed(input, seen_as, keyed, depth + 1, result));
      }
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(engine::CollectionId id, Collection(physical, seen_as));
    collections_[id.value].keyed |= keyed;
    result->push_back(id);
    return OkStatus();
  }

  // The engine collection of `physical` in the coder of `seen_as`; made on first use, with a sink
  // at its producer.
  StatusOr<engine::CollectionId> Collection(const std::string& physical,
                                            const std::string& seen_as) {
    const pipe::PCollection& view = graph_.components.pcollections().at(seen_as);
    const pipe::PCollection& made = graph_.components.pcollections().at(physical);
    MR_ASSIGN_OR_RETURN(std::string windowed,
                        coders_.Windowed(view.coder_id(), made.windowing_strategy_id()));
    MR_ASSIGN_OR_RETURN(std::string signature, coders_.Signature(windowed));
    auto [it, fresh] = collection_ids_.try_emplace({physical, signature}, engine::CollectionId{});
    if (!fresh) return it->second;
    it->second = engine::CollectionId{static_cast<uint32_t>(collections_.size())};
    engine::CollectionSpec spec;
    spec.name = physical;
    spec.bounded = made.is_bounded() != pipe::IsBounded::UNBOUNDED;
    MR_ASSIGN_OR_RETURN(const windowing::Strategy strategy, StrategyOf(physical));
    spec.window_kind = strategy.window_kind;
    collections_.push_back(spec);
    MR_RETURN_IF_ERROR(AddOutput(physical, it->second, windowed));
    return it->second;
  }

  Status AddOutput(const std::string& physical, engine::CollectionId id,
                   const std::string& windowed) {
    if (auto it = made_by_.find(physical); it != made_by_.end()) {
      Draft& draft = drafts_[it->second];
      draft.spec.outputs.push_back(id);
      draft.sinks.push_back({physical, id, windowed});
      return OkStatus();
    }
    auto pass = passes_.find(physical);
    if (pass == passes_.end()) {
      MR_RETURN_IF_ERROR(MakeImpulsePass(physical));
      pass = passes_.find(physical);
    }
    Draft& draft = drafts_[pass->second];
    if (!draft.spec.outputs.empty()) {
      return Unimplemented(
          fmt::format("PCollection {} is flattened with others of another coder right after {}",
                      physical, draft.spec.name));
    }
    draft.spec.outputs.push_back(id);
    return OkStatus();
  }

  // An Impulse that something else than a harness stage reads.
  Status MakeImpulsePass(const std::string& physical) {
    const Leaf& producer = graph_.ProducerOf(physical);
    if (producer.kind != LeafKind::kImpulse) {
      return Internal(fmt::format("PCollection {} has no stage that makes it", physical));
    }
    Draft draft = NewDraft(producer);
    draft.spec.input = engine::InputKind::kImpulse;
    draft.spec.work = engine::Work::kPass;
    draft.spec.impulse = ImpulseElement();
    passes_[physical] = drafts_.size();
    drafts_.push_back(std::move(draft));
    return OkStatus();
  }

  // Producers before consumers; ids follow from the order.
  Status Order() {
    std::map<uint32_t, size_t> producer;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      for (engine::CollectionId output : drafts_[i].spec.outputs) producer[output.value] = i;
    }
    std::vector<bool> done(drafts_.size());
    auto ready = [&](const Draft& draft) {
      auto made = [&](engine::CollectionId id) { return done[producer.at(id.value)]; };
      return std::ranges::all_of(draft.spec.inputs, made) &&
             std::ranges::all_of(draft.spec.side_inputs, [&](const engine::SideInputSpec& side) {
               return made(side.collection);
             });
    };
    while (order_.size() < drafts_.size()) {
      const size_t before = order_.size();
      for (size_t i = 0; i < drafts_.size(); ++i) {
        if (done[i] || !ready(drafts_[i])) continue;
        done[i] = true;
        order_.push_back(i);
      }
      if (order_.size() == before)
        return InvalidArgument("the stages of the pipeline form a cycle");
    }
    return OkStatus();
  }

  Status FillExecutables() {
    for (size_t position = 0; position < order_.size(); ++position) {
      Draft& draft = drafts_[order_[position]];
      if (draft.fused == nullptr) continue;
      StageEnds ends{draft.fused->root_input, draft.sinks};
      MR_ASSIGN_OR_RETURN(ExecutableStage stage,
                          MakeExecutableStage(graph_, coders_, *draft.fused, ends,
                                              engine::StageId{static_cast<uint32_t>(position)}));
      for (Port& port : stage.sinks) port.keyed = collections_[port.collection.value].keyed;
      for (const TimerPort& timer : stage.timers) {
        draft.spec.timers.push_back({timer.transform, timer.family, IsEventTime(timer)});
      }
      planned_.stages.push_back(std::move(stage));
    }
    return OkStatus();
  }

  bool IsEventTime(const TimerPort& timer) const {
    pipe::ParDoPayload payload;
    payload.ParseFromString(graph_.components.transforms().at(timer.transform).spec().payload());
    return payload.timer_family_specs().at(timer.family).time_domain() ==
           pipe::TimeDomain::EVENT_TIME;
  }

  StatusOr<PlannedPipeline> Finish() {
    auto plan = std::make_shared<engine::Plan>();
    plan->collections = std::move(collections_);
    for (size_t i : order_) plan->stages.push_back(std::move(drafts_[i].spec));
    for (const engine::StageSpec& stage : plan->stages)
      plan->unbounded |= stage.input == engine::InputKind::kSource;
    for (const Leaf& leaf : graph_.leaves) {
      for (const std::string& output : leaf.outputs) {
        plan->unbounded |=
            leaf.processes_restrictions &&
            graph_.components.pcollections().at(output).is_bounded() == pipe::IsBounded::UNBOUNDED;
      }
    }
    planned_.plan = std::move(plan);
    for (const ExecutableStage& stage : planned_.stages) {
      planned_.environments[stage.environment] =
          graph_.components.environments().at(stage.environment);
    }
    planned_.original_transforms = graph_.original;
    for (const auto& [id, transform] : graph_.components.transforms()) {
      planned_.unique_names[id] = transform.unique_name();
    }
    return std::move(planned_);
  }

  StatusOr<windowing::Strategy> StrategyOf(const std::string& collection) const {
    auto it = graph_.components.pcollections().find(collection);
    if (it == graph_.components.pcollections().end())
      return InvalidArgument(fmt::format("no PCollection {}", collection));
    return ReadStrategy(graph_.components, it->second.windowing_strategy_id());
  }

  std::string UniqueName(const std::string& id) const {
    return graph_.components.transforms().at(id).unique_name();
  }

  Graph graph_;
  WireCoders coders_;
  std::vector<FusedStage> fused_;
  std::map<std::string, std::vector<const FusedStage*>> stages_at_;
  std::set<std::string> other_readers_;
  std::set<const FusedStage*> headed_;
  std::vector<Draft> drafts_;
  std::map<std::string, size_t> made_by_;  // collection made inside a harness stage → draft
  std::map<std::string, size_t> passes_;   // collection passed on by a runner stage → draft
  std::map<std::pair<std::string, std::string>, engine::CollectionId> collection_ids_;
  std::vector<engine::CollectionSpec> collections_;
  std::vector<size_t> order_;
  PlannedPipeline planned_;
};

}  // namespace

StatusOr<PlannedPipeline> PlanPipeline(const pipe::Pipeline& pipeline) {
  MR_RETURN_IF_ERROR(Validate(pipeline));
  MR_ASSIGN_OR_RETURN(Graph graph, MakeGraph(pipeline));
  return PlanBuilder(std::move(graph)).Build();
}

}  // namespace millrace::planner
