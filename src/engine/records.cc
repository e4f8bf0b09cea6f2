#include "engine/records.h"

namespace millrace::engine {
namespace {

using storage::ByteReader;
using storage::PutFixed64;
using storage::PutString;
using storage::PutVarint;
using storage::UnZigZag;
using storage::ZigZag;

constexpr char kVersion = 1;
constexpr char kBundle = 'b';
constexpr char kStart = 's';

void AppendFired(std::string& out, const CellFired& fired) {
  PutString(out, fired.key);
  AppendWindowTo(out, fired.window);
  PutVarint(out, fired.upto_chunk);
  out.push_back(fired.erase ? 1 : 0);
  std::string part;
  fired.history.AppendTo(part);
  PutString(out, part);
  part.clear();
  fired.trigger.AppendTo(part);
  PutString(out, part);
}

bool ParseFired(ByteReader& in, CellFired* out) {
  out->key = std::string(in.String());
  if (!ParseWindowFrom(in, &out->window)) return false;
  out->upto_chunk = in.Varint();
  out->erase = in.Byte() != 0;
  auto history = windowing::PaneHistory::Parse(in.String());
  auto trigger = windowing::TriggerState::Parse(in.String());
  if (!in.ok() || !history || !trigger) return false;
  out->history = *history;
  out->trigger = std::move(*trigger);
  return true;
}

void AppendResidual(std::string& out, const ResidualRecord& residual) {
  PutString(out, residual.transform);
  PutString(out, residual.input);
  PutString(out, residual.element);
  PutVarint(out, ZigZag(residual.delay_micros));
  PutVarint(out, ZigZag(residual.hold));
}

bool ParseResidual(ByteReader& in, ResidualRecord* out) {
  out->transform = std::string(in.String());
  out->input = std::string(in.String());
  out->element = std::string(in.String());
  out->delay_micros = UnZigZag(in.Varint());
  out->hold = UnZigZag(in.Varint());
  return in.ok();
}

// Reads a count that cannot exceed the bytes left, then so many values.
template <typename T, typename ParseOne>
bool ParseList(ByteReader& in, std::vector<T>* out, ParseOne parse) {
  const uint64_t count = in.Varint();
  if (!in.ok() || count > in.rest().size()) return false;
  out->resize(count);
  for (T& value : *out) {
    if (!parse(in, &value)) return false;
  }
  return in.ok();
}

bool ParseNumber(ByteReader& in, uint64_t* out) {
  *out = in.Varint();
  return in.ok();
}

bool ParseRun(ByteReader& in, ElementRun* out) {
  out->chunk = in.Varint();
  out->first = static_cast<uint32_t>(in.Varint());
  out->count = static_cast<uint32_t>(in.Varint());
  return in.ok();
}

bool ParseId(ByteReader& in, IdHash* out) {
  out->high = in.Fixed64();
  out->low = in.Fixed64();
  return in.ok();
}

}  // namespace

void AppendTimerTo(std::string& out, const Timer& timer) {
  PutString(out, timer.transform);
  PutString(out, timer.family);
  PutString(out, timer.key);
  PutString(out, timer.tag);
  AppendWindowTo(out, timer.window);
  out.push_back(timer.clear ? 1 : 0);
  PutVarint(out, ZigZag(timer.fire));
  PutVarint(out, ZigZag(timer.hold));
  AppendPaneTo(out, timer.pane);
}

bool ParseTimerFrom(ByteReader& in, Timer* out) {
  out->transform = std::string(in.String());
  out->family = std::string(in.String());
  out->key = std::string(in.String());
  out->tag = std::string(in.String());
  if (!ParseWindowFrom(in, &out->window)) return false;
  out->clear = in.Byte() != 0;
  out->fire = UnZigZag(in.Varint());
  out->hold = UnZigZag(in.Varint());
  return ParsePaneFrom(in, &out->pane);
}

void AppendMetricTo(std::string& out, const Metric& metric) {
  PutString(out, metric.urn);
  PutString(out, metric.type);
  PutString(out, metric.payload);
  PutVarint(out, metric.labels.size());
  for (const auto& [name, value] : metric.labels) {
    PutString(out, name);
    PutString(out, value);
  }
}

bool ParseMetricFrom(ByteReader& in, Metric* out) {
  out->urn = std::string(in.String());
  out->type = std::string(in.String());
  out->payload = std::string(in.String());
  const uint64_t labels = in.Varint();
  for (uint64_t i = 0; i < labels && in.ok(); ++i) {
    const std::string name(in.String());
    out->labels[name] = std::string(in.String());
  }
  return in.ok();
}

std::string BundleRecord::Serialize() const {
  std::string out;
  out.push_back(kVersion);
  out.push_back(kBundle);
  PutVarint(out, ZigZag(input_watermark));
  PutVarint(out, ZigZag(output_watermark));
  PutVarint(out, consumed.size());
  for (const ElementRun& run : consumed) {
    PutVarint(out, run.chunk);
    PutVarint(out, run.first);
    PutVarint(out, run.count);
  }
  PutVarint(out, fired.size());
  for (const CellFired& cell : fired) AppendFired(out, cell);
  PutVarint(out, residuals_done.size());
  for (uint64_t id : residuals_done) PutVarint(out, id);
  PutVarint(out, ZigZag(wall_micros));
  PutVarint(out, ids.size());
  for (const IdHash& id : ids) {
    PutFixed64(out, id.high);
    PutFixed64(out, id.low);
  }
  PutVarint(out, acked_runs.size());
  for (uint64_t run : acked_runs) PutVarint(out, run);
  PutVarint(out, residuals.size());
  for (const ResidualRecord& residual : residuals) AppendResidual(out, residual);
  PutVarint(out, timers.size());
  for (const Timer& timer : timers) AppendTimerTo(out, timer);
  PutString(out, state);
  PutVarint(out, metrics.size());
  for (const Metric& metric : metrics) AppendMetricTo(out, metric);
  PutVarint(out, outputs.size());
  for (const PackedChunk& chunk : outputs) chunk.AppendTo(out);
  return out;
}

StatusOr<BundleRecord> BundleRecord::Parse(const SharedBytes& payload) {
  BundleRecord record;
  ByteReader in(payload.view());
  const uint8_t version = in.Byte();
  if (version != kVersion || in.Byte() != kBundle)
    return DataLoss("bundle record: unknown version or kind");
  record.input_watermark = UnZigZag(in.Varint());
  record.output_watermark = UnZigZag(in.Varint());
  bool ok = ParseList(in, &record.consumed, ParseRun) && ParseList(in, &record.fired, ParseFired) &&
            ParseList(in, &record.residuals_done, ParseNumber);
  record.wall_micros = UnZigZag(in.Varint());
  ok = ok && ParseList(in, &record.ids, ParseId) &&
       ParseList(in, &record.acked_runs, ParseNumber) &&
       ParseList(in, &record.residuals, ParseResidual) &&
       ParseList(in, &record.timers, ParseTimerFrom);
  record.state = std::string(in.String());
  ok = ok && ParseList(in, &record.metrics, ParseMetricFrom) &&
       ParseList(in, &record.outputs, [&payload](ByteReader& reader, PackedChunk* out) {
         return PackedChunk::Parse(reader, payload, out);
       });
  if (!ok || !in.ok() || !in.empty()) return DataLoss("bundle record: malformed");
  return record;
}

std::string StartRecord::Serialize() const {
  std::string out;
  out.push_back(kVersion);
  out.push_back(kStart);
  PutVarint(out, epoch);
  return out;
}

StatusOr<StartRecord> StartRecord::Parse(std::string_view payload) {
  ByteReader in(payload);
  const uint8_t version = in.Byte();
  if (version != kVersion || in.Byte() != kStart)
    return DataLoss("start record: unknown version or kind");
  StartRecord record{in.Varint()};
  if (!in.ok()) return DataLoss("start record: malformed");
  return record;
}

}  // namespace millrace::engine
