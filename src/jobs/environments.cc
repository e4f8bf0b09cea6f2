#include "jobs/environments.h"

#include "fmt/format.h"

namespace millrace::jobs {

StatusOr<PoolAddress> PoolOf(const pipe::Environment& environment) {
  if (environment.urn() == "beam:env:external:v1") {
    pipe::ExternalPayload payload;
    if (!payload.ParseFromString(environment.payload()) || payload.endpoint().url().empty()) {
      return InvalidArgument(
          "an EXTERNAL environment names no worker pool; give --environment_config=HOST:PORT");
    }
    PoolAddress pool{.url = payload.endpoint().url()};
    pool.params.insert(payload.params().begin(), payload.params().end());
    return pool;
  }
  if (environment.urn() == "beam:env:anyof:v1") {
    pipe::AnyOfEnvironmentPayload payload;
    if (payload.ParseFromString(environment.payload())) {
      for (const pipe::Environment& one : payload.environments()) {
        StatusOr<PoolAddress> pool = PoolOf(one);
        if (pool.ok()) return pool;
      }
    }
  }
  return Unimplemented(
      fmt::format("environment {} cannot be started by this runner; use "
                  "--environment_type=LOOPBACK, or EXTERNAL with the "
                  "address of a Beam worker pool",
                  environment.urn()));
}

}  // namespace millrace::jobs
