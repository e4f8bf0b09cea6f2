// Words that the job side shares.
#pragma once

#include "org/apache/beam/model/job_management/v1/beam_job_api.pb.h"
#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::jobs {

namespace api = org::apache::beam::model::job_management::v1;
namespace pipe = org::apache::beam::model::pipeline::v1;

using State = api::JobState::Enum;

// No state follows.
inline bool IsTerminal(State state) {
  return state == api::JobState::DONE || state == api::JobState::FAILED ||
         state == api::JobState::CANCELLED || state == api::JobState::UPDATED ||
         state == api::JobState::DRAINED;
}

}  // namespace millrace::jobs
