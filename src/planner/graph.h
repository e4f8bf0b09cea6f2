// The pipeline as a flat graph of leaves: what remains when composites are opened and native
// transforms recognised.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::planner {

namespace pipe = org::apache::beam::model::pipeline::v1;

enum class LeafKind : uint8_t {
  kImpulse,
  kGroupByKey,
  kBorder,  // Flatten, Reshuffle, Redistribute: consumers read what feeds it, in a stage of their
            // own
  kPubSubRead,
  kPubSubWrite,
  kPubSubWriteDynamic,
  kHarness,
};

struct SideInputRef {
  std::string local_name;
  std::string collection;
};

struct Leaf {
  std::string id;
  LeafKind kind = LeafKind::kHarness;
  std::vector<std::string> inputs;  // main inputs; several only for kBorder
  std::vector<SideInputRef> side_inputs;
  std::vector<std::string> outputs;
  std::string environment;
  bool stateful = false;
  bool processes_restrictions = false;  // sdf process_sized: heads its stage
  std::string native_spec;
};

// Owns a copy of the components, changed by expansion; ids that expansion made are in `original`.
struct Graph {
  pipe::Components components;
  std::vector<Leaf> leaves;                     // producers before consumers
  std::map<std::string, size_t> producer;       // collection → leaf
  std::map<std::string, std::string> original;  // made transform id → submitted one

  const Leaf& ProducerOf(const std::string& collection) const {
    return leaves[producer.at(collection)];
  }
};

// Opens composites, drops identities, replaces native transforms, lifts combines, expands
// splittable DoFns, sorts.
StatusOr<Graph> MakeGraph(const pipe::Pipeline& pipeline);

}  // namespace millrace::planner
