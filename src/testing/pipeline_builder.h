// Pipelines as protos, as an SDK would submit them, for tests.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"
#include "org/apache/beam/model/pipeline/v1/standard_window_fns.pb.h"
#include "planner/urns.h"

namespace millrace::testing {

namespace pipe = org::apache::beam::model::pipeline::v1;

// Collections are named by their ids; a coder id is "bytes", "opaque", "varint", or KV, e.g.
// "opaque,bytes" (made on first use). Windowing strategies: "global" and "minutes".
class PipelineBuilder {
 public:
  using Names = std::map<std::string, std::string>;  // local name → collection

  PipelineBuilder() {
    Coder("bytes", "beam:coder:bytes:v1", {});
    Coder("varint", "beam:coder:varint:v1", {});
    Coder("opaque", "beam:coder:pickled_python:v1", {});
    Coder("global_window", "beam:coder:global_window:v1", {});
    Coder("interval_window", "beam:coder:interval_window:v1", {});
    pipe::WindowingStrategy global;
    global.mutable_window_fn()->set_urn("beam:window_fn:global_windows:v1");
    global.set_window_coder_id("global_window");
    global.mutable_trigger()->mutable_default_();
    global.set_merge_status(pipe::MergeStatus::NON_MERGING);
    global.set_accumulation_mode(pipe::AccumulationMode::DISCARDING);
    global.set_output_time(pipe::OutputTime::END_OF_WINDOW);
    (*components().mutable_windowing_strategies())["global"] = global;
    pipe::FixedWindowsPayload minutes;
    minutes.mutable_size()->set_seconds(60);
    pipe::WindowingStrategy windowed = global;
    windowed.mutable_window_fn()->set_urn("beam:window_fn:fixed_windows:v1");
    windowed.mutable_window_fn()->set_payload(minutes.SerializeAsString());
    windowed.set_window_coder_id("interval_window");
    (*components().mutable_windowing_strategies())["minutes"] = windowed;
    for (const char* id : {"py", "java"}) {
      pipe::Environment& environment = (*components().mutable_environments())[id];
      environment.set_urn("beam:env:external:v1");
      pipe::ExternalPayload pool;  // nobody listens there
      pool.mutable_endpoint()->set_url("127.0.0.1:1");
      (*pool.mutable_params())["sdk"] = id;
      environment.set_payload(pool.SerializeAsString());
    }
  }

  pipe::Pipeline& pipeline() { return pipeline_; }
  pipe::Components& components() { return *pipeline_.mutable_components(); }
  pipe::PTransform& transform(const std::string& id) {
    return components().mutable_transforms()->at(id);
  }

  void Coder(const std::string& id, const std::string& urn, const std::vector<std::string>& parts) {
    pipe::Coder coder;
    coder.mutable_spec()->set_urn(urn);
    for (const std::string& part : parts) coder.add_component_coder_ids(part);
    (*components().mutable_coders())[id] = std::move(coder);
  }

  PipelineBuilder& Collection(const std::string& id, const std::string& coder = "bytes",
                              const std::string& strategy = "global", bool bounded = true) {
    if (size_t comma = coder.find(','); comma != std::string::npos)
      Coder(coder, "beam:coder:kv:v1", {coder.substr(0, comma), coder.substr(comma + 1)});
    pipe::PCollection& collection = (*components().mutable_pcollections())[id];
    collection.set_unique_name(id);
    collection.set_coder_id(coder);
    collection.set_windowing_strategy_id(strategy);
    collection.set_is_bounded(bounded ? pipe::IsBounded::BOUNDED : pipe::IsBounded::UNBOUNDED);
    return *this;
  }

  pipe::PTransform& Transform(const std::string& id, const std::string& urn, const Names& inputs,
                              const Names& outputs, const std::string& payload = "",
                              const std::string& environment = "") {
    pipe::PTransform& made = (*components().mutable_transforms())[id];
    made.set_unique_name("name of " + id);
    if (!urn.empty()) made.mutable_spec()->set_urn(urn);
    made.mutable_spec()->set_payload(payload);
    made.mutable_inputs()->insert(inputs.begin(), inputs.end());
    made.mutable_outputs()->insert(outputs.begin(), outputs.end());
    made.set_environment_id(environment);
    pipeline_.add_root_transform_ids(id);
    return made;
  }

  PipelineBuilder& Impulse(const std::string& id, const std::string& out) {
    Collection(out);
    Transform(id, planner::urns::kImpulse, {}, {{"out", out}});
    return *this;
  }
  PipelineBuilder& ParDo(const std::string& id, const std::string& in, const std::string& out,
                         const pipe::ParDoPayload& payload = {},
                         const std::string& environment = "py") {
    Names outputs;
    if (!out.empty()) outputs["out"] = out;
    Transform(id, planner::urns::kParDo, {{"in", in}}, outputs, payload.SerializeAsString(),
              environment);
    return *this;
  }
  PipelineBuilder& GroupByKey(const std::string& id, const std::string& in,
                              const std::string& out) {
    Transform(id, planner::urns::kGroupByKey, {{"in", in}}, {{"out", out}});
    return *this;
  }
  PipelineBuilder& Flatten(const std::string& id, const std::vector<std::string>& in,
                           const std::string& out) {
    Names inputs;
    for (size_t i = 0; i < in.size(); ++i) inputs[fmt::format("{}", i)] = in[i];
    Transform(id, planner::urns::kFlatten, inputs, {{"out", out}});
    return *this;
  }
  PipelineBuilder& Read(const std::string& id, const std::string& out) {
    pipe::PubSubReadPayload payload;
    payload.set_subscription("projects/p/subscriptions/s");
    Collection(out, "bytes", "global", /*bounded=*/false);
    Transform(id, planner::urns::kPubSubRead, {}, {{"out", out}}, payload.SerializeAsString(),
              "py");
    return *this;
  }

  // Makes `parent` a composite of `children`, which are roots no more.
  void Compose(const std::string& parent, const std::vector<std::string>& children,
               const std::string& urn, const Names& inputs, const Names& outputs) {
    Transform(parent, urn, inputs, outputs);
    std::vector<std::string> roots;
    for (const std::string& id : pipeline_.root_transform_ids()) {
      if (std::find(children.begin(), children.end(), id) == children.end()) roots.push_back(id);
    }
    pipeline_.clear_root_transform_ids();
    for (const std::string& id : roots) pipeline_.add_root_transform_ids(id);
    for (const std::string& id : children) transform(parent).add_subtransforms(id);
  }

 private:
  pipe::Pipeline pipeline_;
};

}  // namespace millrace::testing
