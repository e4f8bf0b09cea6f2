#include "jobs/job_rows.h"

#include "fmt/format.h"
#include "windowing/wire.h"

namespace millrace::jobs {
namespace {

constexpr uint64_t kVersion = 1;

}  // namespace

std::string JobKey(uint64_t uid) { return fmt::format("job/{:016x}", uid); }
std::string PipelineKey(uint64_t uid) { return fmt::format("pipeline/{:016x}", uid); }

std::string EncodeJobRow(const JobRow& row) {
  std::string out;
  windowing::AppendVarint(out, kVersion);
  windowing::AppendVarint(out, row.uid);
  windowing::AppendBytes(out, row.id);
  windowing::AppendBytes(out, row.name);
  windowing::AppendVarint(out, static_cast<uint64_t>(row.state));
  windowing::AppendVarint(out, row.created.micros);
  windowing::AppendVarint(out, row.changed.micros);
  windowing::AppendBytes(out, row.error);
  windowing::AppendBytes(out, row.options);
  windowing::AppendBytes(out, row.metrics);
  windowing::AppendVarint(out, static_cast<uint64_t>(row.drain));
  return out;
}

StatusOr<JobRow> DecodeJobRow(std::string_view in) {
  JobRow row;
  uint64_t version = 0, state = 0, drain = 0;
  auto text = [&in](std::string* out) {
    std::string_view view;
    if (!windowing::ParseBytes(in, &view)) return false;
    *out = view;
    return true;
  };
  if (!windowing::ParseVarint(in, &version)) return DataLoss("a job's row is malformed");
  if (version != kVersion) {
    return FailedPrecondition(
        fmt::format("a job's row has version {}; a newer server wrote it", version));
  }
  if (!windowing::ParseVarint(in, &row.uid) || !text(&row.id) || !text(&row.name) ||
      !windowing::ParseVarint(in, &state) || !windowing::ParseVarint(in, &row.created.micros) ||
      !windowing::ParseVarint(in, &row.changed.micros) || !text(&row.error) ||
      !text(&row.options) || !text(&row.metrics) || !windowing::ParseVarint(in, &drain)) {
    return DataLoss("a job's row is malformed");
  }
  row.state = static_cast<State>(state);
  row.drain = drain != 0;
  return row;
}

}  // namespace millrace::jobs
