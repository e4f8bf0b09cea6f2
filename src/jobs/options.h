// What the runner reads of a pipeline's options.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "google/protobuf/struct.pb.h"

namespace millrace::jobs {

struct Options {
  std::string job_name;  // option job_name; the request's name says "job" for Python
  bool streaming = false;
  std::string environment_type;                        // LOOPBACK, EXTERNAL, …; upper case
  int workers = 1;                                     // sdk_worker_parallelism
  Duration timestamp_band = std::chrono::seconds(10);  // service option timestamp_band
  int bundle_attempts = 4;                             // service option bundle_retries
};

// Keys are beam:option:<name>:v1 or bare names. INVALID_ARGUMENT for a service option of ours with
// a bad value; unknown ones are Dataflow's and ignored.
StatusOr<Options> ReadOptions(const google::protobuf::Struct& options,
                              const std::string& request_name);

}  // namespace millrace::jobs
