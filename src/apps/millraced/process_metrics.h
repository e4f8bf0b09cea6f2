// Figures of the process as a whole, in Prometheus' text form.
#pragma once

#include <string>

#include "storage/commit_log.h"

namespace millrace::apps {

std::string ProcessMetrics(const storage::LogStats& log);

}  // namespace millrace::apps
