// One SDK harness process (or thread, in LOOPBACK): its streams and the bundles it is running.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/task.h"
#include "engine/bundle_runner.h"
#include "fnapi/bundle.h"
#include "fnapi/fn_stream.h"
#include "fnapi/stage_program.h"

namespace millrace::fnapi {

using ControlStream = FnStream<fn::InstructionResponse, fn::InstructionRequest>;
using DataStream = FnStream<fn::Elements, fn::Elements>;
using StateStream = FnStream<fn::StateRequest, fn::StateResponse>;
using LoggingStream = FnStream<fn::LogEntry::List, fn::LogControl>;

using Programs = std::map<std::string, std::shared_ptr<const StageProgram>>;  // by descriptor id

// Thread-safe. Owned by its environment's runner and, while connected, by the streams. What belongs
// elsewhere: starting and replacing processes (environment_runner), parsing outputs (bundle).
class Harness : public std::enable_shared_from_this<Harness> {
 public:
  struct Listener {
    Task connected;  // the control stream is there
    Task lost;       // it has ended; bundles in flight were answered UNAVAILABLE before
    std::function<void(const fn::LogEntry&)> log;
  };
  Harness(std::string worker_id, std::shared_ptr<const Programs> programs, Listener listener);

  const std::string& worker_id() const { return worker_id_; }
  // Null for an unknown id.
  std::shared_ptr<const StageProgram> Program(const std::string& descriptor_id) const;

  void Run(std::shared_ptr<const StageProgram> program, engine::BundleRequest request,
           Callback<void(engine::BundleResult)> done);
  void Finalize(uint64_t attempt);
  // Ends the streams; bundles in flight are answered with `status`.
  void Close(Status status);

  // Streams that this harness opened (fn_server). The caller starts the returned stream.
  std::shared_ptr<ControlStream> AcceptControl();
  std::shared_ptr<DataStream> AcceptData();
  std::shared_ptr<StateStream> AcceptState();
  std::shared_ptr<LoggingStream> AcceptLogging();

 private:
  void OnInstructionResponse(fn::InstructionResponse& response);
  void OnElements(fn::Elements& elements);
  void OnStateRequest(fn::StateRequest& request);
  void OnControlClosed();
  void AnswerState(const std::string& id, StatusOr<engine::StatePage> answer, bool is_get);
  std::vector<std::shared_ptr<Bundle>> TakeBundles();

  const std::string worker_id_;
  const std::shared_ptr<const Programs> programs_;
  Listener listener_;

  Mutex mutex_;
  std::shared_ptr<ControlStream> control_ MR_GUARDED_BY(mutex_);
  std::shared_ptr<DataStream> data_ MR_GUARDED_BY(mutex_);
  std::shared_ptr<StateStream> state_ MR_GUARDED_BY(mutex_);
  std::vector<fn::Elements> waiting_for_data_stream_ MR_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Bundle>> bundles_ MR_GUARDED_BY(mutex_);
  bool closed_ MR_GUARDED_BY(mutex_) = false;
  uint64_t next_instruction_ MR_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace::fnapi
