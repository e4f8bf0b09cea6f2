// libFuzzer entry: the scanner against the generated class on any bytes.
#include <cstdlib>

#include "pubsub/topic/publish_scanner_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int accepted = 0;
  std::string difference = millrace::pubsub::CompareScanWithModel(
      std::string_view(reinterpret_cast<const char*>(data), size), &accepted);
  if (!difference.empty()) {
    fmt::print(stderr, "{}\n", difference);
    std::abort();
  }
  return 0;
}
