#include "planner/wire_coders.h"

#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace millrace::planner {
namespace {

constexpr int kDepthMax = 60;

bool IsCuttableLeaf(coders::Coder::Kind kind) {
  using Kind = coders::Coder::Kind;
  return kind == Kind::kBytes || kind == Kind::kString || kind == Kind::kBool ||
         kind == Kind::kVarint || kind == Kind::kDouble || kind == Kind::kLengthPrefix ||
         kind == Kind::kGlobalWindow || kind == Kind::kIntervalWindow;
}

bool IsContainer(coders::Coder::Kind kind) {
  using Kind = coders::Coder::Kind;
  return kind == Kind::kKv || kind == Kind::kIterable || kind == Kind::kNullable ||
         kind == Kind::kTimer || kind == Kind::kShardedKey || kind == Kind::kWindowedValue ||
         kind == Kind::kCustomWindow;
}

}  // namespace

StatusOr<const pipe::Coder*> WireCoders::Find(const std::string& coder_id) const {
  auto it = components_.coders().find(coder_id);
  if (it == components_.coders().end()) {
    return InvalidArgument(fmt::format("coder {} is named but not in the pipeline", coder_id));
  }
  return &it->second;
}

StatusOr<std::string> WireCoders::Cuttable(const std::string& coder_id) {
  return Cuttable(coder_id, 0);
}

StatusOr<std::string> WireCoders::Cuttable(const std::string& coder_id, int depth) {
  if (auto it = cuttable_.find(coder_id); it != cuttable_.end()) return it->second;
  if (depth > kDepthMax)
    return InvalidArgument(fmt::format("coder {} is nested too deeply", coder_id));
  MR_ASSIGN_OR_RETURN(const pipe::Coder* found, Find(coder_id));
  const pipe::Coder coder = *found;
  const coders::Coder::Kind kind = coders::KindOf(coder.spec().urn());
  std::string result = coder_id;
  if (IsContainer(kind)) {
    pipe::Coder made = coder;
    bool changed = false;
    for (int i = 0; i < coder.component_coder_ids_size(); ++i) {
      MR_ASSIGN_OR_RETURN(std::string part, Cuttable(coder.component_coder_ids(i), depth + 1));
      changed |= part != coder.component_coder_ids(i);
      made.set_component_coder_ids(i, std::move(part));
    }
    if (changed) {
      result = coder_id + "/cuttable";
      (*components_.mutable_coders())[result] = std::move(made);
    }
  } else if (!IsCuttableLeaf(kind)) {
    result = coder_id + "/prefixed";
    pipe::Coder made;
    made.mutable_spec()->set_urn(std::string(coders::kLengthPrefixUrn));
    made.add_component_coder_ids(coder_id);
    (*components_.mutable_coders())[result] = std::move(made);
  }
  cuttable_[coder_id] = result;
  return result;
}

StatusOr<std::string> WireCoders::Windowed(const std::string& element_coder_id,
                                           const std::string& strategy_id) {
  auto strategy = components_.windowing_strategies().find(strategy_id);
  if (strategy == components_.windowing_strategies().end()) {
    return InvalidArgument(
        fmt::format("windowing strategy {} is named but not in the pipeline", strategy_id));
  }
  const std::string& window = strategy->second.window_coder_id();
  MR_ASSIGN_OR_RETURN(std::string element, Cuttable(element_coder_id));
  MR_ASSIGN_OR_RETURN(std::string cuttable_window, Cuttable(window));
  pipe::Coder made;
  made.mutable_spec()->set_urn(std::string(coders::kWindowedValueUrn));
  made.add_component_coder_ids(element);
  made.add_component_coder_ids(cuttable_window);
  std::string id = fmt::format("windowed/{}/{}", element, cuttable_window);
  (*components_.mutable_coders())[id] = std::move(made);
  return id;
}

StatusOr<coders::CoderPtr> WireCoders::Tree(const std::string& coder_id) {
  return Tree(coder_id, 0);
}

StatusOr<coders::CoderPtr> WireCoders::Tree(const std::string& coder_id, int depth) {
  if (depth > kDepthMax)
    return InvalidArgument(fmt::format("coder {} is nested too deeply", coder_id));
  MR_ASSIGN_OR_RETURN(const pipe::Coder* coder, Find(coder_id));
  std::vector<coders::CoderPtr> parts;
  // What is inside a prefix need not be known.
  const coders::Coder::Kind kind = coders::KindOf(coder->spec().urn());
  if (kind == coders::Coder::Kind::kLengthPrefix) {
    parts.push_back(coders::LeafCoder(coders::Coder::Kind::kOpaque));
  } else if (kind != coders::Coder::Kind::kOpaque) {
    for (const std::string& part : coder->component_coder_ids()) {
      MR_ASSIGN_OR_RETURN(coders::CoderPtr tree, Tree(part, depth + 1));
      parts.push_back(std::move(tree));
    }
  }
  return coders::MakeCoder(coder->spec().urn(), coder->spec().payload(), std::move(parts));
}

StatusOr<std::string> WireCoders::Signature(const std::string& coder_id) {
  MR_ASSIGN_OR_RETURN(const pipe::Coder* coder, Find(coder_id));
  std::string text = fmt::format("{}:{}:{}(", coder->spec().urn(), coder->spec().payload().size(),
                                 coder->spec().payload());
  for (const std::string& part : coder->component_coder_ids()) {
    if (text.size() > (1 << 20))
      return InvalidArgument(fmt::format("coder {} is too large", coder_id));
    MR_ASSIGN_OR_RETURN(std::string inner, Signature(part));
    text += inner;
    text += ',';
  }
  return text + ")";
}

}  // namespace millrace::planner
