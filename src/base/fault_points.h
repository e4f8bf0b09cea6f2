// Planted bugs: named places where a test can make the code do the wrong thing, to show that other
// tests would notice. Compiled in always; while none is switched on a passage costs one relaxed
// load.
#pragma once

#include <atomic>
#include <string_view>

namespace millrace {

namespace fault_internal {
extern std::atomic<int> switched_on;
bool IsOn(std::string_view name);
}  // namespace fault_internal

// True if a test has switched the point `name` on. Any thread.
inline bool FaultPoint(std::string_view name) {
  return fault_internal::switched_on.load(std::memory_order_relaxed) != 0 &&
         fault_internal::IsOn(name);
}

// Switches a point on for a scope. Tests only.
class ScopedFault {
 public:
  explicit ScopedFault(std::string_view name);
  ~ScopedFault();
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;

 private:
  const std::string_view name_;
};

}  // namespace millrace
