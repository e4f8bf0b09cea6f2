#include "planner/fuse.h"

#include <optional>

namespace millrace::planner {
namespace {

bool MustHead(const Leaf& leaf) {
  return leaf.stateful || leaf.processes_restrictions || !leaf.side_inputs.empty();
}

// A stage whose root reads `input` and which takes siblings.
std::optional<size_t> SiblingStage(const Graph& graph, const std::vector<FusedStage>& stages,
                                   const std::string& input, const std::string& environment) {
  if (graph.ProducerOf(input).kind == LeafKind::kImpulse) return std::nullopt;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!stages[i].alone && stages[i].root_input == input && stages[i].environment == environment)
      return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<FusedStage> Fuse(const Graph& graph) {
  std::vector<FusedStage> stages;
  std::map<size_t, size_t> stage_of;  // leaf → stage
  for (size_t i = 0; i < graph.leaves.size(); ++i) {
    const Leaf& leaf = graph.leaves[i];
    if (leaf.kind != LeafKind::kHarness) continue;
    const std::string& input = leaf.inputs.front();
    const size_t producer = graph.producer.at(input);
    auto upstream = stage_of.find(producer);
    std::optional<size_t> stage;
    if (!MustHead(leaf)) {
      if (upstream != stage_of.end() && stages[upstream->second].environment == leaf.environment) {
        stage = upstream->second;
      } else {
        stage = SiblingStage(graph, stages, input, leaf.environment);
      }
    }
    if (!stage) {
      stage = stages.size();
      stages.push_back(
          {.root_input = input, .environment = leaf.environment, .alone = MustHead(leaf)});
    }
    stages[*stage].leaves.push_back(i);
    stage_of[i] = *stage;
  }
  return stages;
}

}  // namespace millrace::planner
