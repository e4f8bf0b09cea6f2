// Durable forms of jobs, in Table::kJobs: one row a job, its pipeline in another (it never
// changes).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "jobs/types.h"

namespace millrace::jobs {

struct JobRow {
  uint64_t uid = 0;
  std::string id, name;
  State state = api::JobState::UNSPECIFIED;
  WallTime created, changed;
  std::string error;    // of FAILED
  std::string options;  // google.protobuf.Struct
  std::string metrics;  // MetricResults, once it has ended
  bool drain = false;   // a drain was asked for
};

std::string JobKey(uint64_t uid);
std::string PipelineKey(uint64_t uid);
inline constexpr char kJobPrefix[] = "job/";
inline constexpr char kJobPrefixEnd[] = "job0";

std::string EncodeJobRow(const JobRow& row);
StatusOr<JobRow> DecodeJobRow(std::string_view bytes);

}  // namespace millrace::jobs
