// A native source: pulled by the engine, acked after the commit of the first fused stage (DESIGN
// 6).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/task.h"
#include "windowing/types.h"

namespace millrace::engine {

struct SourceElement {
  std::string dedup_id;  // empty: not deduplicated
  SharedBytes value;     // nested-encoded element (bytes:v1: length-prefixed)
  windowing::Millis timestamp = 0;
  uint64_t handle = 0;  // names it in Ack and Release; never used twice by one source object
};

struct SourceBatch {
  Status status;  // not OK: told in the job's messages, asked again later
  std::vector<SourceElement> elements;
  bool finished = false;  // after Drain: nothing more will come
};

// One per source stage and start of the job. Thread-safe; callbacks may come on any thread. Keeps
// its elements' leases alive until Ack or Release.
class Source {
 public:
  virtual ~Source() = default;
  // One pull is outstanding at a time; answered when there is something.
  virtual void Pull(size_t max_elements, size_t max_bytes, Callback<void(SourceBatch)> done) = 0;
  // The elements are in a durable commit (or known duplicates of such). `done`: the acks are
  // durable too.
  virtual void Ack(std::vector<uint64_t> handles, Callback<void(Status)> done) = 0;
  // Gives elements back unprocessed (cancel).
  virtual void Release(std::vector<uint64_t> handles) = 0;
  // Event time before which no further element will come, given that Pull's answers so far and
  // unacked elements are accounted for by the source itself: it includes what is pulled and not
  // acked.
  virtual void Watermark(Callback<void(StatusOr<windowing::Millis>)> done) = 0;
  // Takes no more; Pull answers `finished` once what was taken has been handed over.
  virtual void Drain() = 0;
  virtual void Stop() = 0;
};

// `stage_state` distinguishes sources of one job; `report` puts a warning into the job's messages.
using SourceFactory = std::function<StatusOr<std::unique_ptr<Source>>(
    const std::string& spec, const std::string& job_name,
    std::function<void(Status warning)> report)>;

}  // namespace millrace::engine
