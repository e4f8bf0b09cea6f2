#include "fnapi/bundle.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "coders/walk.h"
#include "fmt/format.h"
#include "windowing/wire.h"

namespace millrace::fnapi {
namespace {

constexpr size_t kErrorTextMax = 16 << 10;  // a harness may send megabytes of stack traces

const PortProgram* FindSink(const StageProgram& program, const std::string& transform) {
  for (const PortProgram& sink : program.sinks) {
    if (sink.transform == transform) return &sink;
  }
  return nullptr;
}

const TimerProgram* FindTimers(const StageProgram& program, const std::string& transform,
                               const std::string& family) {
  for (const TimerProgram& timers : program.timers) {
    if (timers.transform == transform && timers.family == family) return &timers;
  }
  return nullptr;
}

std::string EncodeTimer(const engine::Timer& timer) {
  std::string out;
  windowing::Timer wire;
  wire.key = timer.key;
  wire.tag = timer.tag;
  wire.windows = windowing::WindowList(timer.window);
  wire.clear = timer.clear;
  wire.fire = timer.fire;
  wire.hold = timer.hold;
  wire.pane = timer.pane;
  windowing::AppendTimer(out, wire);
  return out;
}

StatusOr<engine::Chunk> ParseChunk(const PortProgram& sink, std::string frame) {
  engine::Chunk chunk;
  chunk.collection = sink.collection;
  chunk.bytes = SharedBytes(std::move(frame));
  coders::ElementReader reader(*sink.windowed_coder, sink.keyed);
  reader.Reset(chunk.bytes.view());
  coders::ElementView view;
  while (reader.Next(&view)) {
    engine::Element& element = chunk.elements.emplace_back();
    element.encoded = view.whole;
    element.value = view.value;
    element.key = view.key;
    element.kv_value = view.kv_value;
    element.timestamp = view.timestamp;
    element.pane = view.pane;
    element.windows.assign(view.windows.begin(), view.windows.end());
  }
  if (!reader.ok()) {
    return DataLoss(
        fmt::format("the SDK harness sent malformed elements for {} ({} of {} bytes read)",
                    sink.transform, chunk.bytes.size() - reader.rest().size(), chunk.bytes.size()));
  }
  return chunk;
}

}  // namespace

Bundle::Bundle(std::shared_ptr<const StageProgram> program, engine::BundleRequest request,
               Callback<void(engine::BundleResult)> done)
    : program_(std::move(program)),
      request_(std::move(request)),
      done_(std::move(done)),
      instruction_(fmt::format("bundle-{}", request_.attempt)) {
  for (const PortProgram& sink : program_->sinks) open_ends_.insert({sink.transform, ""});
  for (const TimerProgram& timers : program_->timers)
    open_ends_.insert({timers.transform, timers.family});
}

fn::InstructionRequest Bundle::MakeInstruction() const {
  fn::InstructionRequest instruction;
  instruction.set_instruction_id(instruction_);
  fn::ProcessBundleRequest* process = instruction.mutable_process_bundle();
  process->set_process_bundle_descriptor_id(program_->descriptor.id());
  if (!request_.cache_token.empty()) {
    fn::ProcessBundleRequest::CacheToken* token = process->add_cache_tokens();
    token->mutable_user_state();
    token->set_token(request_.cache_token);
  }
  return instruction;
}

std::vector<fn::Elements> Bundle::MakeFrames() const {
  std::vector<fn::Elements> frames;
  for (const SharedBytes& piece : request_.data) {
    if (piece.empty()) continue;
    fn::Elements::Data* data = frames.emplace_back().add_data();
    data->set_instruction_id(instruction_);
    data->set_transform_id(program_->source.transform);
    data->set_data(piece.data(), piece.size());
  }
  fn::Elements& last = frames.emplace_back();
  for (const engine::Timer& timer : request_.timers) {
    fn::Elements::Timers* timers = last.add_timers();
    timers->set_instruction_id(instruction_);
    timers->set_transform_id(timer.transform);
    timers->set_timer_family_id(timer.family);
    timers->set_timers(EncodeTimer(timer));
  }
  fn::Elements::Data* end = last.add_data();
  end->set_instruction_id(instruction_);
  end->set_transform_id(program_->source.transform);
  end->set_is_last(true);
  for (const TimerProgram& family : program_->timers) {
    fn::Elements::Timers* timers = last.add_timers();
    timers->set_instruction_id(instruction_);
    timers->set_transform_id(family.transform);
    timers->set_timer_family_id(family.family);
    timers->set_is_last(true);
  }
  return frames;
}

void Bundle::OnData(fn::Elements::Data& data) {
  if (!data.data().empty())
    data_.emplace_back(data.transform_id(), std::move(*data.mutable_data()));
  if (data.is_last()) open_ends_.erase({data.transform_id(), ""});
}

void Bundle::OnTimers(fn::Elements::Timers& timers) {
  if (!timers.timers().empty()) {
    const TimerProgram* program =
        FindTimers(*program_, timers.transform_id(), timers.timer_family_id());
    if (program == nullptr) {
      failed_ = true;
      error_ = fmt::format("the SDK harness sent timers of unknown family {} of {}",
                           timers.timer_family_id(), timers.transform_id());
      return;
    }
    timers_.emplace_back(program, std::move(*timers.mutable_timers()));
  }
  if (timers.is_last()) open_ends_.erase({timers.transform_id(), timers.timer_family_id()});
}

void Bundle::OnResponse(fn::InstructionResponse& response) {
  if (!response.error().empty()) {
    failed_ = true;
    error_ = response.error();
    return;
  }
  responded_ = true;
  response_.Swap(response.mutable_process_bundle());
  for (fn::Elements::Data& data : *response_.mutable_elements()->mutable_data()) OnData(data);
  for (fn::Elements::Timers& timers : *response_.mutable_elements()->mutable_timers())
    OnTimers(timers);
}

void Bundle::Finish() {
  engine::BundleResult result;
  if (failed_) {
    if (error_.size() > kErrorTextMax) error_.resize(kErrorTextMax);
    Fail(MakeStatus(StatusCode::kUnknown, error_));
    return;
  }
  Status parsed = ParseOutputs(&result);
  if (parsed.ok()) parsed = ParseTimers(&result);
  if (!parsed.ok()) {
    Fail(std::move(parsed));
    return;
  }
  ReadResponse(&result);
  std::exchange(done_, nullptr)(std::move(result));
}

void Bundle::Fail(Status status) {
  if (!done_) return;
  engine::BundleResult result;
  result.status = std::move(status);
  std::exchange(done_, nullptr)(std::move(result));
}

Status Bundle::ParseOutputs(engine::BundleResult* result) {
  for (auto& [transform, frame] : data_) {
    const PortProgram* sink = FindSink(*program_, transform);
    if (sink == nullptr) {
      return DataLoss(
          fmt::format("the SDK harness sent elements for unknown transform {}", transform));
    }
    MR_ASSIGN_OR_RETURN(engine::Chunk chunk, ParseChunk(*sink, std::move(frame)));
    result->outputs.push_back(std::move(chunk));
  }
  return OkStatus();
}

Status Bundle::ParseTimers(engine::BundleResult* result) const {
  for (const auto& [program, frame] : timers_) {
    const windowing::Walker key = coders::WalkerOf(program->coder->component(0));
    const windowing::WindowFormat windows = coders::FormatOf(program->coder->component(1));
    std::string_view rest = frame;
    windowing::Timer wire;
    while (!rest.empty()) {
      if (!windowing::ParseTimer(rest, key, windows, &wire)) {
        return DataLoss(fmt::format("the SDK harness sent malformed timers of family {} of {}",
                                    program->family, program->transform));
      }
      for (const windowing::Window& window : wire.windows) {
        engine::Timer timer;
        timer.transform = program->transform;
        timer.family = program->family;
        timer.key = wire.key;
        timer.tag = wire.tag;
        timer.window = window;
        timer.clear = wire.clear;
        timer.fire = wire.fire;
        timer.hold = wire.hold;
        timer.pane = wire.pane;
        result->timers.push_back(std::move(timer));
      }
    }
  }
  return OkStatus();
}

void Bundle::ReadResponse(engine::BundleResult* result) const {
  result->wants_finalization = response_.requires_finalization();
  for (const pipe::MonitoringInfo& info : response_.monitoring_infos()) {
    engine::Metric& metric = result->metrics.emplace_back();
    metric.urn = info.urn();
    metric.type = info.type();
    metric.payload = info.payload();
    metric.labels.insert(info.labels().begin(), info.labels().end());
  }
  for (const fn::DelayedBundleApplication& root : response_.residual_roots()) {
    engine::Residual& residual = result->residuals.emplace_back();
    residual.transform = root.application().transform_id();
    residual.input = root.application().input_id();
    residual.element = root.application().element();
    residual.delay = std::chrono::seconds(root.requested_time_delay().seconds()) +
                     std::chrono::microseconds(root.requested_time_delay().nanos() / 1000);
    for (const auto& [output, time] : root.application().output_watermarks()) {
      residual.output_watermarks[output] = time.seconds() * 1000 + time.nanos() / 1'000'000;
    }
  }
}

}  // namespace millrace::fnapi
