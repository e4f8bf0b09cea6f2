// Coders of what crosses stage borders: the pipeline's coders with a length prefix around each part
// that the runner cannot cut.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "coders/coder.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::planner {

namespace pipe = org::apache::beam::model::pipeline::v1;

// Adds coders to the components as it goes. Not thread-safe; the components outlive it.
class WireCoders {
 public:
  explicit WireCoders(pipe::Components& components) : components_(components) {}

  // Id of the cuttable form of a coder; the coder itself where it is one already.
  StatusOr<std::string> Cuttable(const std::string& coder_id);
  // Id of windowed_value(Cuttable(element), window coder of the strategy).
  StatusOr<std::string> Windowed(const std::string& element_coder_id,
                                 const std::string& strategy_id);
  // The tree of a coder by id; opaque parts as kOpaque.
  StatusOr<coders::CoderPtr> Tree(const std::string& coder_id);
  // Equal texts: equal encodings.
  StatusOr<std::string> Signature(const std::string& coder_id);

 private:
  StatusOr<const pipe::Coder*> Find(const std::string& coder_id) const;
  StatusOr<std::string> Cuttable(const std::string& coder_id, int depth);
  StatusOr<coders::CoderPtr> Tree(const std::string& coder_id, int depth);

  pipe::Components& components_;
  std::map<std::string, std::string> cuttable_;
};

}  // namespace millrace::planner
