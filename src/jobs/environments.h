// Which environments this runner can start workers in.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "jobs/types.h"

namespace millrace::jobs {

struct PoolAddress {
  std::string url;
  std::map<std::string, std::string> params;
};

// The worker pool of an environment (LOOPBACK and EXTERNAL; of "any of" the first such).
// UNIMPLEMENTED for others, with what to do.
StatusOr<PoolAddress> PoolOf(const pipe::Environment& environment);

}  // namespace millrace::jobs
