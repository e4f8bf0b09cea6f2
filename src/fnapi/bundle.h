// One attempt to run a bundle in a harness: what went out, what has come back, and the translation
// of it for the engine.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/task.h"
#include "engine/bundle_runner.h"
#include "fnapi/stage_program.h"

namespace millrace::fnapi {

// Not thread-safe: guarded by its harness. Done once the response has come and every sink and timer
// family has sent its last frame, or at the first error.
class Bundle {
 public:
  Bundle(std::shared_ptr<const StageProgram> program, engine::BundleRequest request,
         Callback<void(engine::BundleResult)> done);

  const std::string& instruction() const { return instruction_; }
  const std::shared_ptr<engine::BundleState>& state() const { return request_.state; }

  // What to send: the instruction, then the frames (input, timers, and the marks of their ends).
  fn::InstructionRequest MakeInstruction() const;
  std::vector<fn::Elements> MakeFrames() const;

  // Take over what a harness sent.
  void OnData(fn::Elements::Data& data);
  void OnTimers(fn::Elements::Timers& timers);
  void OnResponse(fn::InstructionResponse& response);
  bool complete() const { return failed_ || (responded_ && open_ends_.empty()); }

  // After complete(): parses what came and calls `done`. Outside the harness's lock.
  void Finish();
  // Calls `done` with this error.
  void Fail(Status status);

 private:
  // An output end: a sink transform, or transform and timer family.
  using End = std::pair<std::string, std::string>;

  Status ParseOutputs(engine::BundleResult* result);
  Status ParseTimers(engine::BundleResult* result) const;
  void ReadResponse(engine::BundleResult* result) const;

  std::shared_ptr<const StageProgram> program_;
  engine::BundleRequest request_;
  Callback<void(engine::BundleResult)> done_;
  std::string instruction_;
  std::set<End> open_ends_;
  std::vector<std::pair<std::string, std::string>> data_;            // sink transform, frame
  std::vector<std::pair<const TimerProgram*, std::string>> timers_;  // family, frame
  fn::ProcessBundleResponse response_;
  bool responded_ = false;
  bool failed_ = false;
  std::string error_;
};

}  // namespace millrace::fnapi
