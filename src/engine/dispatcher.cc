#include "engine/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/pass.h"

namespace millrace::engine {
namespace {

constexpr size_t kStateBytesMax = 64 << 20;

// While a bundle of the stage runs, another is cut only when so much is ready, or when the rest has
// waited so long: a bundle costs a harness a millisecond, whatever is in it.
constexpr size_t kParallelReady = 256;
constexpr Duration kParallelWait = std::chrono::milliseconds(20);

bool SaysNothingOfElements(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled;
}

size_t ReadyOf(const StageState& stage, SteadyTime now) {
  size_t ready = 0;
  for (const auto& range : stage.ranges) ready += range->ready(now);
  return ready;
}

void AddConsumed(BundleRecord& record, const Ref& ref) {
  if (!record.consumed.empty()) {
    ElementRun& last = record.consumed.back();
    if (last.chunk == ref.chunk->number && last.first + last.count == ref.index) {
      ++last.count;
      return;
    }
  }
  record.consumed.push_back({ref.chunk->number, ref.index, 1});
}

}  // namespace

Dispatcher::Dispatcher(Parts parts) : parts_(std::move(parts)) {
  for (auto it = parts_.stages->rbegin(); it != parts_.stages->rend(); ++it) {
    StageState* stage = it->get();
    if (stage->spec->work == Work::kBundle)
      by_environment_[stage->spec->environment].push_back(stage);
    if (stage->spec->work == Work::kPass) passes_.push_back(stage);
  }
  for (const StageSpec& stage : parts_.plan->stages) {
    for (CollectionId output : stage.outputs) {
      counted_.insert(parts_.plan->collections[output.value].name);
    }
  }
}

void Dispatcher::Pump() {
  PumpPasses();
  for (auto& [environment, stages] : by_environment_) {
    auto runner = parts_.runners->find(environment);
    if (runner == parts_.runners->end()) continue;
    while (in_flight_[environment] < runner->second->Slots() && RunOneOf(stages)) {
    }
  }
}

void Dispatcher::PumpPasses() {
  for (StageState* stage : passes_) {
    while (ReadyOf(*stage, parts_.clock->SteadyNow()) > 0) {
      std::unique_ptr<Bundle> bundle = Cut(*stage);
      if (!bundle) break;
      RunPass(*stage, std::move(bundle));
    }
  }
}

// Stages nearest to the end go first, so that little waits in between.
bool Dispatcher::RunOneOf(const std::vector<StageState*>& stages) {
  const SteadyTime now = parts_.clock->SteadyNow();
  for (StageState* stage : stages) {
    std::unique_ptr<Bundle> bundle = stage->retry.Next(now);
    if (!bundle && MayCut(*stage, now)) bundle = Cut(*stage);
    if (!bundle) continue;
    Launch(*stage, std::move(bundle));
    return true;
  }
  return false;
}

bool Dispatcher::MayCut(StageState& stage, SteadyTime now) {
  const size_t ready = ReadyOf(stage, now);
  if (ready == 0 || stage.retry.Paused(now)) {
    stage.waits_since.reset();
    return false;
  }
  if (stage.in_flight == 0 || ready >= kParallelReady) return true;
  if (!stage.waits_since) stage.waits_since = now;
  return now - *stage.waits_since >= kParallelWait;
}

std::unique_ptr<Bundle> Dispatcher::Cut(StageState& stage) {
  auto bundle = std::make_unique<Bundle>();
  bundle->stage = stage.id;
  stage.waits_since.reset();
  const RangeTimes times = parts_.commit->TimesOf(stage);
  Budget budget{parts_.options->bundle_elements_max, parts_.options->bundle_bytes_max};
  for (size_t i = 0; i < stage.ranges.size() && !budget.empty(); ++i) {
    RangeShard* range = stage.ranges[(stage.next_range + i) % stage.ranges.size()].get();
    for (Input& work : range->Take(budget, times))
      bundle->items.push_back({range, std::move(work)});
  }
  stage.next_range = (stage.next_range + 1) % stage.ranges.size();
  return bundle->items.empty() ? nullptr : std::move(bundle);
}

void Dispatcher::Launch(StageState& stage, std::unique_ptr<Bundle> bundle) {
  BundleRequest request;
  request.attempt = bundle->attempt = ++last_attempt_;
  request.stage = stage.id;
  const Status encoded = EncodeItems(bundle->items, &request, &bundle->data_bytes);
  if (!encoded.ok()) {
    parts_.fail(encoded);
    return;
  }
  if (request.element_count == 0 && request.timers.empty()) {  // all of it came too late
    Finish(stage, std::move(bundle), BundleResult{}, {}, {});
    return;
  }
  if (stage.place) request.state = bundle->state = parts_.make_state(stage, bundle->attempt);
  ++stage.in_flight;
  ++in_flight_[stage.spec->environment];
  const uint64_t attempt = bundle->attempt;
  running_[attempt] = std::move(bundle);
  parts_.runners->find(stage.spec->environment)
      ->second->Run(std::move(request), parts_.on_result(attempt));
}

void Dispatcher::RunPass(StageState& stage, std::unique_ptr<Bundle> bundle) {
  bundle->attempt = ++last_attempt_;
  StatusOr<std::vector<PackedChunk>> outputs =
      PassThrough(bundle->items, *stage.spec, *parts_.plan);
  if (!outputs.ok()) {
    parts_.fail(outputs.status());
    return;
  }
  Finish(stage, std::move(bundle), BundleResult{}, std::move(*outputs), {});
}

void Dispatcher::OnResult(uint64_t attempt, BundleResult result) {
  auto it = running_.find(attempt);
  if (it == running_.end()) return;
  std::shared_ptr<StateOverlay> state = std::exchange(it->second->state, nullptr);
  if (state && result.status.ok()) {
    parts_.close_state(std::move(state), attempt, std::move(result));
    return;
  }
  if (state) state->Close([](StatusOr<storage::WriteBatch>) {});
  Answered(attempt, std::move(result), {});
}

void Dispatcher::OnState(uint64_t attempt, BundleResult result,
                         StatusOr<storage::WriteBatch> changes) {
  std::string state;
  if (!changes.ok()) {
    result.status = Internal(MessageOf(changes.status()));
  } else if (changes->bytes() > kStateBytesMax) {
    result.status = ResourceExhausted(
        fmt::format("a bundle changes {} MiB of state; at most {} MiB are possible",
                    changes->bytes() >> 20, kStateBytesMax >> 20));
  } else if (!changes->empty()) {
    state = changes->Serialize();
  }
  Answered(attempt, std::move(result), std::move(state));
}

void Dispatcher::Answered(uint64_t attempt, BundleResult result, std::string state) {
  auto it = running_.find(attempt);
  if (it == running_.end()) return;
  std::unique_ptr<Bundle> bundle = std::move(it->second);
  running_.erase(it);
  StageState& stage = *(*parts_.stages)[bundle->stage.value];
  --stage.in_flight;
  --in_flight_[stage.spec->environment];
  if (!result.status.ok()) {
    OnFailure(stage, std::move(bundle), result);
    return;
  }
  std::vector<PackedChunk> outputs;
  for (const Chunk& chunk : result.outputs) {
    if (chunk.collection.value >= parts_.plan->collections.size() || chunk.elements.empty()) {
      continue;
    }
    const CollectionSpec& spec = parts_.plan->collections[chunk.collection.value];
    outputs.push_back(PackedChunk::Pack(chunk, spec.window_kind, spec.keyed));
  }
  stage.retry.Succeeded();
  Finish(stage, std::move(bundle), std::move(result), std::move(outputs), std::move(state));
}

void Dispatcher::OnFailure(StageState& stage, std::unique_ptr<Bundle> bundle,
                           const BundleResult& result) {
  const SteadyTime now = parts_.clock->SteadyNow();
  if (SaysNothingOfElements(result.status)) {
    stage.retry.Lost(std::move(bundle), now);
    return;
  }
  ++stage.failed_bundles;
  for (const Metric& metric : result.metrics) parts_.failed->Merge(metric);
  const std::string text(MessageOf(result.status));
  if (stage.retry.Failed(std::move(bundle), now)) {
    parts_.messages->Tell(
        Importance::kError,
        fmt::format("A bundle of {} failed and is tried again: {}", stage.spec->name, text));
    return;
  }
  parts_.fail(result.status);
}

void Dispatcher::Finish(StageState& stage, std::unique_ptr<Bundle> bundle, BundleResult result,
                        std::vector<PackedChunk> outputs, std::string state) {
  if (result.consumed) PutBackRest(CutAfter(bundle->items, *result.consumed), bundle->items);
  std::vector<RangeRecord> records = MakeRecords(stage, *bundle, result);
  records.front().record.outputs = std::move(outputs);
  records.front().record.state = std::move(state);
  ++stage.bundles;
  for (const Item& item : bundle->items) stage.elements_in += item.elements();
  Task effects = MakeEffects(stage, std::move(bundle->items), records, bundle->attempt,
                             result.wants_finalization);
  parts_.commit->Commit(std::move(records), std::move(effects));
  parts_.changed();
}

// What a channel split left goes back, in order, ahead of all that came later. Timers have run,
// wherever they stand.
void Dispatcher::PutBackRest(std::vector<Item> rest, std::vector<Item>& kept) {
  for (auto it = rest.rbegin(); it != rest.rend(); ++it) {
    auto* batch = std::get_if<KeyBatch>(&it->work);
    if (batch != nullptr && batch->refs.empty()) {
      kept.push_back(std::move(*it));
      continue;
    }
    const bool shared =
        batch != nullptr && std::any_of(kept.begin(), kept.end(), [batch](const Item& item) {
          const auto* other = std::get_if<KeyBatch>(&item.work);
          return other != nullptr && other->entry == batch->entry;
        });
    if (shared) {
      it->range->PutBackElements(*batch);  // the key is released with the part that was taken
    } else {
      it->range->PutBack(std::move(it->work));
    }
  }
}

std::vector<RangeRecord> Dispatcher::MakeRecords(StageState& stage, Bundle& bundle,
                                                 BundleResult& result) {
  std::vector<RangeRecord> records;
  const auto of = [&](RangeShard* range) -> BundleRecord& {
    for (RangeRecord& part : records) {
      if (part.range == range) return part.record;
    }
    records.push_back({range, {}});
    BundleRecord& record = records.back().record;
    record.input_watermark = parts_.keeper->input(stage.id);
    record.output_watermark = parts_.keeper->output(stage.id);
    record.acked_runs = range->dedup().TakeAcked();
    return record;
  };
  for (Item& item : bundle.items) {
    BundleRecord& record = of(item.range);
    if (const auto* run = std::get_if<Run>(&item.work)) {
      record.consumed.push_back({run->chunk->number, run->first, run->count});
    } else if (const auto* batch = std::get_if<KeyBatch>(&item.work)) {
      for (const Ref& ref : batch->refs) AddConsumed(record, ref);
      for (const Ref& ref : batch->expired) AddConsumed(record, ref);
      for (Timer timer : batch->timers) {
        timer.clear = true;
        record.timers.push_back(std::move(timer));
      }
    } else if (auto* pane = std::get_if<CellPane>(&item.work)) {
      record.fired.push_back(pane->fired);
    } else if (const auto* source = std::get_if<std::unique_ptr<SourcePending>>(&item.work)) {
      record.wall_micros = parts_.clock->WallNow().micros;
      if ((*source)->has_id) record.ids.push_back((*source)->id);
    } else if (const auto* residual = std::get_if<ResidualWork>(&item.work)) {
      record.residuals_done.push_back(residual->id);
    }
  }
  if (records.empty()) of(stage.ranges.front().get());
  for (Residual& rest : result.residuals) {
    ResidualRecord residual{rest.transform, rest.input, std::move(rest.element), rest.delay.count(),
                            windowing::kMaxTimestamp};
    if (rest.output_watermarks.empty()) residual.hold = windowing::kMinTimestamp;
    for (const auto& [output, watermark] : rest.output_watermarks)
      residual.hold = std::min(residual.hold, watermark);
    records.front().record.residuals.push_back(std::move(residual));
  }
  for (Metric& metric : result.metrics) {
    auto collection = metric.labels.find("PCOLLECTION");
    if (metric.urn == kElementCountUrn && collection != metric.labels.end() &&
        counted_.contains(collection->second))
      continue;
    if (IsDurable(metric)) {
      records.front().record.metrics.push_back(std::move(metric));
    } else {
      parts_.committed->Merge(metric);
    }
  }
  for (Timer& timer : result.timers) {
    BundleRecord& record = of(&stage.RangeOfKey(timer.key));
    record.timers.push_back(std::move(timer));
  }
  return records;
}

// Keys of stages without state are free at once; with state, when the next bundle can read what
// this one wrote.
Task Dispatcher::MakeEffects(StageState& stage, std::vector<Item> items,
                             const std::vector<RangeRecord>& records, uint64_t attempt,
                             bool finalize) {
  struct Acks {
    RangeShard* range;
    uint64_t run;
    std::vector<uint64_t> handles;
    size_t elements;
  };
  std::vector<Acks> acks;
  std::vector<std::pair<RangeShard*, KeyEntry*>> keys;
  for (const RangeRecord& part : records)
    acks.push_back({part.range, part.range->next_seq(), {}, 0});
  for (Item& item : items) {
    if (auto* source = std::get_if<std::unique_ptr<SourcePending>>(&item.work)) {
      for (Acks& part : acks) {
        if (part.range != item.range) continue;
        part.handles.insert(part.handles.end(), (*source)->handles.begin(),
                            (*source)->handles.end());
        ++part.elements;
      }
    } else if (auto* batch = std::get_if<KeyBatch>(&item.work)) {
      keys.emplace_back(item.range, batch->entry);
    } else if (auto* pane = std::get_if<CellPane>(&item.work)) {
      if (pane->lock != nullptr) keys.emplace_back(item.range, pane->lock);
    }
  }
  std::erase_if(acks, [](const Acks& part) { return part.handles.empty(); });
  return
      [this, &stage, acks = std::move(acks), keys = std::move(keys), attempt, finalize]() mutable {
        for (Acks& part : acks)
          parts_.ack(stage, *part.range, part.run, std::move(part.handles), part.elements);
        for (auto& [range, entry] : keys) range->ReleaseKey(entry, parts_.commit->TimesOf(stage));
        if (finalize) {
          auto runner = parts_.runners->find(stage.spec->environment);
          if (runner != parts_.runners->end()) runner->second->Finalize(attempt);
        }
      };
}

// Times that have passed do not count: what they allow waits for a slot, whose coming is a turn of
// its own.
std::optional<SteadyTime> Dispatcher::NextTime() const {
  const SteadyTime now = parts_.clock->SteadyNow();
  std::optional<SteadyTime> next;
  const auto lower = [&next, now](std::optional<SteadyTime> time) {
    if (time && *time > now && (!next || *time < *next)) next = time;
  };
  for (const auto& stage : *parts_.stages) {
    stage->retry.EachTime(lower);
    if (stage->waits_since) lower(*stage->waits_since + kParallelWait);
    for (const auto& range : stage->ranges) lower(range->NextResidual(now));
  }
  return next;
}

bool Dispatcher::BacksOff() const {
  const SteadyTime now = parts_.clock->SteadyNow();
  return std::any_of(parts_.stages->begin(), parts_.stages->end(),
                     [now](const auto& stage) { return stage->retry.Paused(now); });
}

std::vector<std::unique_ptr<Bundle>> Dispatcher::Abandon() {
  std::vector<std::unique_ptr<Bundle>> all;
  for (auto& [attempt, bundle] : running_) all.push_back(std::move(bundle));
  running_.clear();
  for (const auto& stage : *parts_.stages) {
    for (auto& bundle : stage->retry.Drain()) all.push_back(std::move(bundle));
  }
  return all;
}

}  // namespace millrace::engine
