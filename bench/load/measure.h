// CPU and memory of client, server and the rest of the machine; the report as JSON.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "histogram.h"
#include "options.h"
#include "shared.h"

namespace millrace::load {

struct Cpu {
  double self = 0, server = 0, busy = 0, steal = 0;
  uint64_t at = 0;
};

// All the machine's busy and stolen seconds, to show what else ran beside the measurement.
inline void MachineCpu(double& busy, double& steal) {
  std::ifstream f("/proc/stat");
  std::string cpu;
  double v[8] = {};
  f >> cpu;
  for (double& x : v) f >> x;
  double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  busy = (v[0] + v[1] + v[2] + v[5] + v[6]) / tick;
  steal = v[7] / tick;
}

inline double ServerCpu(int pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(f, line);
  size_t p = line.rfind(')');
  if (p == std::string::npos) return 0;
  unsigned long u = 0, s = 0;
  std::sscanf(line.c_str() + p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &s);
  return static_cast<double>(u + s) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
inline double ServerRssMb(int pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(f, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}
inline Cpu Sample(const Options& o) {
  rusage r;
  getrusage(RUSAGE_SELF, &r);
  Cpu c;
  c.self = static_cast<double>(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
  if (o.server_pid) c.server = ServerCpu(o.server_pid);
  MachineCpu(c.busy, c.steal);
  c.at = NowNs();
  return c;
}

class Json {
 public:
  void Num(const std::string& k, double v) {
    char b[64];
    std::snprintf(b, sizeof b, v == static_cast<double>(static_cast<int64_t>(v)) ? "%.0f" : "%.4g",
                  v);
    if (v >= 10000) std::snprintf(b, sizeof b, "%.0f", v);
    Raw(k, b);
  }
  void Str(const std::string& k, const std::string& v) {
    std::string q = "\"";
    for (char c : v) {
      if (c == '"' || c == '\\') {
        q += '\\';
        q += c;
      } else if (static_cast<unsigned char>(c) < 32)
        q += ' ';
      else
        q += c;
    }
    Raw(k, q + "\"");
  }
  void Lat(const std::string& k, const Histogram& h) {
    Json j;
    j.Num("p50", h.quantile_ms(.5));
    j.Num("p90", h.quantile_ms(.9));
    j.Num("p99", h.quantile_ms(.99));
    j.Num("p99_9", h.quantile_ms(.999));
    j.Num("max", h.max_ms());
    j.Num("mean", h.mean_ms());
    j.Num("n", static_cast<double>(h.total()));
    Raw(k, j.Text());
  }
  void Raw(const std::string& k, const std::string& v) {
    out_ += (out_.empty() ? "" : ", ") + ("\"" + k + "\": ") + v;
  }
  std::string Text() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

}  // namespace millrace::load
