// Thins out what a job tells people, so that an error which repeats does not bury the others.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "engine/job.h"

namespace millrace::engine {

// One message per distinct text and minute; the next one of the same text says how many were left
// out. Texts are cut at 8 KiB. Single-threaded; owned by a job.
class Messages {
 public:
  Messages(JobListener& listener, const Clock& clock) : listener_(listener), clock_(clock) {}
  void Tell(Importance importance, std::string text);

 private:
  struct Told {
    SteadyTime next{};
    uint64_t left_out = 0;
  };
  static constexpr size_t kTextMax = 8 << 10;
  static constexpr size_t kDistinctMax = 1000;

  JobListener& listener_;
  const Clock& clock_;
  std::map<std::string, Told> told_;
};

}  // namespace millrace::engine
