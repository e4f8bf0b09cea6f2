#include "base/fault_points.h"

#include <set>
#include <string>

#include "base/mutex.h"

namespace millrace {
namespace fault_internal {

std::atomic<int> switched_on{0};

struct Switches {
  Mutex mutex;
  std::multiset<std::string, std::less<>> on MR_GUARDED_BY(mutex);
};

static Switches& AllSwitches() {
  static Switches* switches = new Switches;
  return *switches;
}

bool IsOn(std::string_view name) {
  Switches& switches = AllSwitches();
  MutexLock lock(switches.mutex);
  return switches.on.find(name) != switches.on.end();
}

}  // namespace fault_internal

ScopedFault::ScopedFault(std::string_view name) : name_(name) {
  auto& switches = fault_internal::AllSwitches();
  MutexLock lock(switches.mutex);
  switches.on.emplace(name);
  fault_internal::switched_on.fetch_add(1);
}

ScopedFault::~ScopedFault() {
  auto& switches = fault_internal::AllSwitches();
  MutexLock lock(switches.mutex);
  switches.on.erase(switches.on.find(name_));
  fault_internal::switched_on.fetch_sub(1);
}

}  // namespace millrace
