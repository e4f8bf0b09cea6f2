#include "planner/strategy.h"

#include <utility>

#include "coders/coder.h"
#include "fmt/format.h"
#include "org/apache/beam/model/pipeline/v1/standard_window_fns.pb.h"

namespace millrace::planner {
namespace {

using windowing::Millis;

Millis ToMillis(const google::protobuf::Duration& d) {
  return d.seconds() * 1000 + d.nanos() / 1'000'000;
}
Millis ToMillis(const google::protobuf::Timestamp& t) {
  return t.seconds() * 1000 + t.nanos() / 1'000'000;
}

StatusOr<windowing::WindowFn> ReadWindowFn(const pipe::FunctionSpec& spec) {
  windowing::WindowFn fn;
  fn.urn = spec.urn();
  fn.payload = spec.payload();
  if (spec.urn() == "beam:window_fn:global_windows:v1") {
    fn.kind = windowing::WindowFnKind::kGlobal;
  } else if (spec.urn() == "beam:window_fn:fixed_windows:v1") {
    pipe::FixedWindowsPayload payload;
    if (!payload.ParseFromString(spec.payload()))
      return InvalidArgument("malformed FixedWindowsPayload");
    fn.kind = windowing::WindowFnKind::kFixed;
    fn.size = ToMillis(payload.size());
    fn.offset = ToMillis(payload.offset());
  } else if (spec.urn() == "beam:window_fn:sliding_windows:v1") {
    pipe::SlidingWindowsPayload payload;
    if (!payload.ParseFromString(spec.payload()))
      return InvalidArgument("malformed SlidingWindowsPayload");
    fn.kind = windowing::WindowFnKind::kSliding;
    fn.size = ToMillis(payload.size());
    fn.offset = ToMillis(payload.offset());
    fn.period = ToMillis(payload.period());
  } else if (spec.urn() == "beam:window_fn:session_windows:v1") {
    pipe::SessionWindowsPayload payload;
    if (!payload.ParseFromString(spec.payload()))
      return InvalidArgument("malformed SessionWindowsPayload");
    fn.kind = windowing::WindowFnKind::kSessions;
    fn.gap = ToMillis(payload.gap_size());
  } else {
    fn.kind = windowing::WindowFnKind::kCustom;
  }
  return fn;
}

StatusOr<windowing::Trigger> ReadTrigger(const pipe::Trigger& trigger, int depth);

template <typename List>
StatusOr<std::vector<windowing::Trigger>> ReadTriggers(const List& list, int depth) {
  std::vector<windowing::Trigger> triggers;
  for (const pipe::Trigger& sub : list) {
    MR_ASSIGN_OR_RETURN(windowing::Trigger read, ReadTrigger(sub, depth + 1));
    triggers.push_back(std::move(read));
  }
  return triggers;
}

StatusOr<windowing::Trigger> ReadAfterEndOfWindow(const pipe::Trigger::AfterEndOfWindow& proto,
                                                  int depth) {
  std::optional<windowing::Trigger> early, late;
  if (proto.has_early_firings()) {
    MR_ASSIGN_OR_RETURN(early, ReadTrigger(proto.early_firings(), depth + 1));
  }
  if (proto.has_late_firings()) {
    MR_ASSIGN_OR_RETURN(late, ReadTrigger(proto.late_firings(), depth + 1));
  }
  return windowing::Trigger::AfterEndOfWindow(std::move(early), std::move(late));
}

windowing::Trigger ReadAfterProcessingTime(const pipe::Trigger::AfterProcessingTime& proto) {
  windowing::Trigger trigger;
  trigger.kind = windowing::Trigger::Kind::kAfterProcessingTime;
  for (const pipe::TimestampTransform& step : proto.timestamp_transforms()) {
    windowing::TimestampTransform made;
    made.align = step.has_align_to();
    made.delay = step.delay().delay_millis();
    made.period = step.align_to().period();
    made.offset = step.align_to().offset();
    trigger.transforms.push_back(made);
  }
  return trigger;
}

StatusOr<windowing::Trigger> ReadTrigger(const pipe::Trigger& trigger, int depth) {
  using windowing::Trigger;
  if (depth > 50) return InvalidArgument("a trigger is nested too deeply");
  switch (trigger.trigger_case()) {
    case pipe::Trigger::kDefault:
    case pipe::Trigger::TRIGGER_NOT_SET:
      return Trigger::Default();
    case pipe::Trigger::kAlways:
      return Trigger::Always();
    case pipe::Trigger::kNever:
      return Trigger::Never();
    case pipe::Trigger::kElementCount:
      return Trigger::ElementCount(trigger.element_count().element_count());
    case pipe::Trigger::kAfterProcessingTime:
      return ReadAfterProcessingTime(trigger.after_processing_time());
    case pipe::Trigger::kAfterSynchronizedProcessingTime: {
      Trigger made;
      made.kind = Trigger::Kind::kAfterSynchronizedProcessingTime;
      return made;
    }
    case pipe::Trigger::kAfterEndOfWindow:
      return ReadAfterEndOfWindow(trigger.after_end_of_window(), depth);
    case pipe::Trigger::kRepeat: {
      MR_ASSIGN_OR_RETURN(Trigger sub, ReadTrigger(trigger.repeat().subtrigger(), depth + 1));
      return Trigger::Repeat(std::move(sub));
    }
    case pipe::Trigger::kAfterAll: {
      MR_ASSIGN_OR_RETURN(auto subs, ReadTriggers(trigger.after_all().subtriggers(), depth));
      return Trigger::AfterAll(std::move(subs));
    }
    case pipe::Trigger::kAfterAny: {
      MR_ASSIGN_OR_RETURN(auto subs, ReadTriggers(trigger.after_any().subtriggers(), depth));
      return Trigger::AfterAny(std::move(subs));
    }
    case pipe::Trigger::kAfterEach: {
      MR_ASSIGN_OR_RETURN(auto subs, ReadTriggers(trigger.after_each().subtriggers(), depth));
      return Trigger::AfterEach(std::move(subs));
    }
    case pipe::Trigger::kOrFinally: {
      MR_ASSIGN_OR_RETURN(Trigger main, ReadTrigger(trigger.or_finally().main(), depth + 1));
      MR_ASSIGN_OR_RETURN(Trigger finally, ReadTrigger(trigger.or_finally().finally(), depth + 1));
      return Trigger::OrFinally(std::move(main), std::move(finally));
    }
  }
  return Unimplemented("a trigger of an unknown kind");
}

StatusOr<windowing::WindowKind> ReadWindowKind(const pipe::Components& components,
                                               const std::string& coder_id) {
  auto it = components.coders().find(coder_id);
  if (it == components.coders().end()) {
    return InvalidArgument(
        fmt::format("window coder {} is named but not in the pipeline", coder_id));
  }
  const std::string& urn = it->second.spec().urn();
  if (urn == coders::kGlobalWindowUrn) return windowing::WindowKind::kGlobal;
  if (urn == coders::kIntervalWindowUrn) return windowing::WindowKind::kInterval;
  if (urn == coders::kCustomWindowUrn) return windowing::WindowKind::kCustom;
  return Unimplemented(fmt::format(
      "windows with coder {}: the runner cannot read their end; use a custom_window coder", urn));
}

}  // namespace

StatusOr<windowing::Strategy> ReadStrategy(const pipe::Components& components,
                                           const std::string& strategy_id) {
  auto it = components.windowing_strategies().find(strategy_id);
  if (it == components.windowing_strategies().end()) {
    return InvalidArgument(
        fmt::format("windowing strategy {} is named but not in the pipeline", strategy_id));
  }
  const pipe::WindowingStrategy& proto = it->second;
  windowing::Strategy strategy;
  MR_ASSIGN_OR_RETURN(strategy.window_fn, ReadWindowFn(proto.window_fn()));
  MR_ASSIGN_OR_RETURN(strategy.window_kind, ReadWindowKind(components, proto.window_coder_id()));
  MR_ASSIGN_OR_RETURN(strategy.trigger, ReadTrigger(proto.trigger(), 0));
  strategy.merging = proto.merge_status() == pipe::MergeStatus::NEEDS_MERGE;
  strategy.assigns_to_one_window = proto.assigns_to_one_window();
  strategy.allowed_lateness = proto.allowed_lateness();
  strategy.environment_id = proto.environment_id();
  switch (proto.accumulation_mode()) {
    case pipe::AccumulationMode::ACCUMULATING:
      strategy.accumulation = windowing::AccumulationMode::kAccumulating;
      break;
    case pipe::AccumulationMode::RETRACTING:
      strategy.accumulation = windowing::AccumulationMode::kRetracting;
      break;
    default:
      strategy.accumulation = windowing::AccumulationMode::kDiscarding;
  }
  switch (proto.output_time()) {
    case pipe::OutputTime::LATEST_IN_PANE:
      strategy.output_time = windowing::TimestampCombiner::kLatest;
      break;
    case pipe::OutputTime::EARLIEST_IN_PANE:
      strategy.output_time = windowing::TimestampCombiner::kEarliest;
      break;
    default:
      strategy.output_time = windowing::TimestampCombiner::kEndOfWindow;
  }
  strategy.closing = proto.closing_behavior() == pipe::ClosingBehavior::EMIT_ALWAYS
                         ? windowing::ClosingBehavior::kEmitAlways
                         : windowing::ClosingBehavior::kEmitIfNonempty;
  strategy.on_time = proto.on_time_behavior() == pipe::OnTimeBehavior::FIRE_IF_NONEMPTY
                         ? windowing::OnTimeBehavior::kFireIfNonempty
                         : windowing::OnTimeBehavior::kFireAlways;
  if (std::string why = windowing::WhyUnsupported(strategy); !why.empty())
    return Unimplemented(why);
  return strategy;
}

}  // namespace millrace::planner
