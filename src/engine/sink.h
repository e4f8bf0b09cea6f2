// A native sink. Its outbox is the pending queue of its stage: what a bundle wrote is committed
// with that bundle, then written here, then removed. A write may be repeated after a crash, always
// with the same producer and sequence.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "engine/element.h"

namespace millrace::engine {

// Thread-safe. Writes of one producer are made one at a time, sequences growing.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Write(const std::string& producer, uint64_t sequence,
                     std::shared_ptr<const Chunk> elements, Callback<void(Status)> done) = 0;
  virtual void Stop() = 0;
};

using SinkFactory = std::function<StatusOr<std::unique_ptr<Sink>>(
    const std::string& spec, const std::string& job_name,
    std::function<void(Status warning)> report)>;

}  // namespace millrace::engine
