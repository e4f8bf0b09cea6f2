#include "engine/metrics.h"

#include <bit>
#include <set>

#include "engine/records.h"
#include "windowing/wire.h"

namespace millrace::engine {
namespace {

using windowing::AppendVarint;
using windowing::ParseVarint;

bool ParseDouble(std::string_view& in, double* out) {
  uint64_t bits = 0;
  if (!windowing::ParseBigEndian64(in, &bits)) return false;
  *out = std::bit_cast<double>(bits);
  return true;
}
void AppendDouble(std::string& out, double value) {
  windowing::AppendBigEndian64(out, std::bit_cast<uint64_t>(value));
}

bool Parse(std::string_view& in, int64_t* out) { return ParseVarint(in, out); }
bool Parse(std::string_view& in, double* out) { return ParseDouble(in, out); }
void Append(std::string& out, int64_t value) { AppendVarint(out, value); }
void Append(std::string& out, double value) { AppendDouble(out, value); }

template <typename T>
bool MergeSum(std::string& into, std::string_view from) {
  std::string_view old = into;
  T a{}, b{};
  if (!Parse(old, &a) || !Parse(from, &b)) return false;
  std::string sum;
  if constexpr (std::is_same_v<T, int64_t>) {
    Append(sum, static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)));
  } else {
    Append(sum, a + b);
  }
  into = std::move(sum);
  return true;
}

template <typename T>
struct Distribution {
  int64_t count = 0;
  T sum{}, min{}, max{};
  bool Read(std::string_view in) {
    if (!ParseVarint(in, &count)) return false;
    if (count == 0) return true;
    return Parse(in, &sum) && Parse(in, &min) && Parse(in, &max);
  }
};

template <typename T>
bool MergeDistribution(std::string& into, std::string_view from) {
  Distribution<T> a, b;
  if (!a.Read(into) || !b.Read(from)) return false;
  if (b.count == 0) return true;
  if (a.count == 0) {
    into = std::string(from);
    return true;
  }
  std::string merged;
  AppendVarint(merged, a.count + b.count);
  Append(merged, static_cast<T>(a.sum + b.sum));
  Append(merged, std::min(a.min, b.min));
  Append(merged, std::max(a.max, b.max));
  into = std::move(merged);
  return true;
}

bool MergeLatest(std::string& into, std::string_view from) {
  std::string_view a = into, b = from;
  int64_t time_a = 0, time_b = 0;
  if (!ParseVarint(a, &time_a) || !ParseVarint(b, &time_b)) return false;
  if (time_b >= time_a) into = std::string(from);
  return true;
}

bool ReadSet(std::string_view in, std::set<std::string>* out) {
  uint32_t count = 0;
  if (!windowing::ParseBigEndian32(in, &count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    std::string_view text;
    if (!windowing::ParseBytes(in, &text)) return false;
    out->emplace(text);
  }
  return in.empty();
}

bool MergeSet(std::string& into, std::string_view from) {
  std::set<std::string> all;
  if (!ReadSet(into, &all) || !ReadSet(from, &all)) return false;
  std::string merged;
  windowing::AppendBigEndian32(merged, static_cast<uint32_t>(all.size()));
  for (const std::string& text : all) windowing::AppendBytes(merged, text);
  into = std::move(merged);
  return true;
}

bool MergePayload(const std::string& type, std::string& into, std::string_view from) {
  if (type == kSumInt64Type) return MergeSum<int64_t>(into, from);
  if (type == "beam:metrics:sum_double:v1") return MergeSum<double>(into, from);
  if (type == "beam:metrics:distribution_int64:v1") return MergeDistribution<int64_t>(into, from);
  if (type == "beam:metrics:distribution_double:v1") return MergeDistribution<double>(into, from);
  if (type == "beam:metrics:latest_int64:v1" || type == "beam:metrics:latest_double:v1")
    return MergeLatest(into, from);
  if (type == "beam:metrics:set_string:v1") return MergeSet(into, from);
  return false;
}

}  // namespace

void MetricTable::Merge(const Metric& metric) {
  auto [it, fresh] = metrics_.try_emplace({metric.urn, metric.labels}, metric);
  if (fresh) return;
  Metric& old = it->second;
  if (old.type != metric.type || !MergePayload(old.type, old.payload, metric.payload)) old = metric;
}

void MetricTable::Count(const std::string& collection, int64_t elements) {
  Metric metric{
      std::string(kElementCountUrn), std::string(kSumInt64Type), {}, {{"PCOLLECTION", collection}}};
  AppendVarint(metric.payload, elements);
  Merge(metric);
}

std::vector<Metric> MetricTable::Report() const {
  std::vector<Metric> all;
  all.reserve(metrics_.size());
  for (const auto& [key, metric] : metrics_) all.push_back(metric);
  return all;
}

void MetricTable::AppendTo(std::string& out) const {
  storage::PutVarint(out, metrics_.size());
  for (const auto& [key, metric] : metrics_) AppendMetricTo(out, metric);
}

bool MetricTable::Parse(std::string_view bytes) {
  storage::ByteReader in(bytes);
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    Metric metric;
    if (!ParseMetricFrom(in, &metric)) return false;
    Merge(metric);
  }
  return in.ok();
}

bool IsDurable(const Metric& metric) {
  return metric.urn.starts_with("beam:metric:user:") || metric.urn == kElementCountUrn;
}

}  // namespace millrace::engine
