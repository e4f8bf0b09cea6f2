#include "fnapi/harness.h"

#include <utility>

#include "base/log.h"
#include "fmt/format.h"
#include "fnapi/state_keys.h"

namespace millrace::fnapi {

Harness::Harness(std::string worker_id, std::shared_ptr<const Programs> programs, Listener listener)
    : worker_id_(std::move(worker_id)),
      programs_(std::move(programs)),
      listener_(std::move(listener)) {}

std::shared_ptr<const StageProgram> Harness::Program(const std::string& descriptor_id) const {
  auto it = programs_->find(descriptor_id);
  return it == programs_->end() ? nullptr : it->second;
}

void Harness::Run(std::shared_ptr<const StageProgram> program, engine::BundleRequest request,
                  Callback<void(engine::BundleResult)> done) {
  auto bundle = std::make_shared<Bundle>(std::move(program), std::move(request), std::move(done));
  fn::InstructionRequest instruction = bundle->MakeInstruction();
  std::vector<fn::Elements> frames = bundle->MakeFrames();
  bool sent = false;
  {
    MutexLock lock(mutex_);
    if (!closed_ && control_ != nullptr) {
      bundles_[bundle->instruction()] = bundle;
      sent = control_->Send(std::move(instruction));
      if (!sent) bundles_.erase(bundle->instruction());
    }
    if (sent) {
      for (fn::Elements& frame : frames) {
        if (data_ == nullptr) {
          waiting_for_data_stream_.push_back(std::move(frame));
        } else {
          data_->Send(std::move(frame));
        }
      }
    }
  }
  if (!sent) bundle->Fail(Unavailable(fmt::format("SDK worker {} is gone", worker_id_)));
}

void Harness::Finalize(uint64_t attempt) {
  MutexLock lock(mutex_);
  if (control_ == nullptr) return;
  fn::InstructionRequest instruction;
  instruction.set_instruction_id(fmt::format("finalize-{}", next_instruction_++));
  instruction.mutable_finalize_bundle()->set_instruction_id(fmt::format("bundle-{}", attempt));
  control_->Send(std::move(instruction));
}

std::vector<std::shared_ptr<Bundle>> Harness::TakeBundles() {
  std::vector<std::shared_ptr<Bundle>> taken;
  for (auto& [id, bundle] : bundles_) taken.push_back(std::move(bundle));
  bundles_.clear();
  waiting_for_data_stream_.clear();
  return taken;
}

void Harness::Close(Status status) {
  std::vector<std::shared_ptr<Bundle>> bundles;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    bundles = TakeBundles();
    if (control_ != nullptr) control_->Close(grpc::Status::OK);
    if (data_ != nullptr) data_->Close(grpc::Status::OK);
    if (state_ != nullptr) state_->Close(grpc::Status::OK);
  }
  for (const std::shared_ptr<Bundle>& bundle : bundles) bundle->Fail(status);
}

std::shared_ptr<ControlStream> Harness::AcceptControl() {
  auto stream = ControlStream::Make(
      {.on_message = [self = shared_from_this()](
                         fn::InstructionResponse& m) { self->OnInstructionResponse(m); },
       .on_closed = [self = shared_from_this()] { self->OnControlClosed(); }});
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = control_ == nullptr && !closed_;
    if (first) control_ = stream;
  }
  if (first && listener_.connected) listener_.connected();
  return stream;
}

std::shared_ptr<DataStream> Harness::AcceptData() {
  auto stream = DataStream::Make(
      {.on_message = [self = shared_from_this()](fn::Elements& m) { self->OnElements(m); },
       .on_closed = nullptr});
  MutexLock lock(mutex_);
  data_ = stream;
  for (fn::Elements& frame : waiting_for_data_stream_) data_->Send(std::move(frame));
  waiting_for_data_stream_.clear();
  return stream;
}

std::shared_ptr<StateStream> Harness::AcceptState() {
  auto stream = StateStream::Make(
      {.on_message = [self = shared_from_this()](fn::StateRequest& m) { self->OnStateRequest(m); },
       .on_closed = nullptr});
  MutexLock lock(mutex_);
  state_ = stream;
  return stream;
}

std::shared_ptr<LoggingStream> Harness::AcceptLogging() {
  return LoggingStream::Make({.on_message =
                                  [self = shared_from_this()](fn::LogEntry::List& list) {
                                    if (!self->listener_.log) return;
                                    for (const fn::LogEntry& entry : list.log_entries())
                                      self->listener_.log(entry);
                                  },
                              .on_closed = nullptr});
}

void Harness::OnInstructionResponse(fn::InstructionResponse& response) {
  std::shared_ptr<Bundle> finished;
  {
    MutexLock lock(mutex_);
    auto it = bundles_.find(response.instruction_id());
    if (it == bundles_.end()) {
      if (!response.error().empty()) {
        MR_LOG(kDebug, "worker {}: {} failed: {}", worker_id_, response.instruction_id(),
               response.error());
      }
      return;
    }
    it->second->OnResponse(response);
    if (!it->second->complete()) return;
    finished = std::move(it->second);
    bundles_.erase(it);
  }
  finished->Finish();
}

void Harness::OnElements(fn::Elements& elements) {
  std::vector<std::shared_ptr<Bundle>> finished;
  {
    MutexLock lock(mutex_);
    auto deliver = [&](const std::string& instruction, auto&& give) MR_REQUIRES(mutex_) {
      auto it = bundles_.find(instruction);
      if (it == bundles_.end()) return;  // failed before: what it still sends is dropped
      give(*it->second);
      if (!it->second->complete()) return;
      finished.push_back(std::move(it->second));
      bundles_.erase(it);
    };
    for (fn::Elements::Data& data : *elements.mutable_data()) {
      deliver(data.instruction_id(), [&](Bundle& bundle) { bundle.OnData(data); });
    }
    for (fn::Elements::Timers& timers : *elements.mutable_timers()) {
      deliver(timers.instruction_id(), [&](Bundle& bundle) { bundle.OnTimers(timers); });
    }
  }
  for (const std::shared_ptr<Bundle>& bundle : finished) bundle->Finish();
}

void Harness::OnStateRequest(fn::StateRequest& request) {
  std::shared_ptr<engine::BundleState> state;
  {
    MutexLock lock(mutex_);
    auto it = bundles_.find(request.instruction_id());
    if (it != bundles_.end()) state = it->second->state();
  }
  const std::string id = request.id();
  if (state == nullptr) {
    AnswerState(id, FailedPrecondition(fmt::format("{} is not running", request.instruction_id())),
                false);
    return;
  }
  StatusOr<engine::StateKey> key = ReadStateKey(request.state_key());
  if (!key.ok()) {
    AnswerState(id, key.status(), false);
    return;
  }
  auto self = shared_from_this();
  switch (request.request_case()) {
    case fn::StateRequest::kGet:
      state->Get(*std::move(key), request.get().continuation_token(),
                 [self, id](StatusOr<engine::StatePage> page) {
                   self->AnswerState(id, std::move(page), true);
                 });
      return;
    case fn::StateRequest::kAppend:
      state->Append(
          *std::move(key), std::move(*request.mutable_append()->mutable_data()),
          [self, id](Status status) {
            self->AnswerState(
                id, status.ok() ? StatusOr<engine::StatePage>(engine::StatePage{}) : status, false);
          });
      return;
    case fn::StateRequest::kClear:
      state->Clear(*std::move(key), [self, id](Status status) {
        self->AnswerState(
            id, status.ok() ? StatusOr<engine::StatePage>(engine::StatePage{}) : status, false);
      });
      return;
    case fn::StateRequest::REQUEST_NOT_SET:
      AnswerState(id, InvalidArgument("a state request without get, append or clear"), false);
  }
}

void Harness::AnswerState(const std::string& id, StatusOr<engine::StatePage> answer, bool is_get) {
  fn::StateResponse response;
  response.set_id(id);
  if (!answer.ok()) {
    response.set_error(std::string(MessageOf(answer.status())));
  } else if (is_get) {
    response.mutable_get()->set_data(std::move(answer->data));
    response.mutable_get()->set_continuation_token(std::move(answer->continuation));
  } else {
    response.mutable_append();
  }
  std::shared_ptr<StateStream> stream;
  {
    MutexLock lock(mutex_);
    stream = state_;
  }
  if (stream != nullptr) stream->Send(std::move(response));
}

void Harness::OnControlClosed() {
  std::vector<std::shared_ptr<Bundle>> bundles;
  bool expected = false;
  {
    MutexLock lock(mutex_);
    expected = closed_;
    closed_ = true;
    control_.reset();
    bundles = TakeBundles();
  }
  for (const std::shared_ptr<Bundle>& bundle : bundles) {
    bundle->Fail(
        Unavailable(fmt::format("SDK worker {} ended while it ran this bundle", worker_id_)));
  }
  if (!expected && listener_.lost) listener_.lost();
}

}  // namespace millrace::fnapi
