#include "apps/millraced/process_metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace millrace::apps {
namespace {

template <typename T>
void Add(std::string& out, const char* name, const char* type, const char* help, T value) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

std::string ProcessMetrics(const storage::LogStats& log) {
  std::string out;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Add(out, "process_cpu_seconds_total", "counter", "CPU time of this process.",
      Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  uint64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  Add(out, "process_resident_memory_bytes", "gauge", "Resident memory of this process.",
      resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  Add(out, "millrace_log_disk_bytes", "gauge", "Disk space of the commit log.", log.disk_bytes);
  Add(out, "millrace_log_entry_bytes", "gauge", "Message bytes in the commit log still alive.",
      log.entry_bytes);
  Add(out, "millrace_log_commit_groups_total", "counter", "Commit groups written.", log.groups);
  Add(out, "millrace_log_durable_end", "counter", "Place in the log below which all is durable.",
      log.durable_end);
  return out;
}

}  // namespace millrace::apps
