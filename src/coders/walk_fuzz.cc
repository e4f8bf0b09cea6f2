// libFuzzer target: the first bytes make a coder tree, the rest is walked under it. Build with
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Isrc src/coders/*_fuzz.cc
//     src/coders/{coder,walk,encode}.cc src/windowing/{wire,strategy}.cc src/base/status.cc
//     -labsl_status -labsl_statusor -labsl_cord -labsl_strings -lfmt …
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "coders/encode.h"
#include "coders/walk.h"

namespace millrace::coders {
namespace {

uint8_t Take(std::string_view& in) {
  if (in.empty()) return 0;
  const auto byte = static_cast<uint8_t>(in[0]);
  in.remove_prefix(1);
  return byte;
}

RowField FieldFrom(std::string_view& in, int depth) {
  const uint8_t byte = Take(in);
  RowField field;
  field.kind = static_cast<RowField::Kind>(byte % 13);
  field.nullable = (byte & 0x80) != 0;
  const bool container =
      field.kind == RowField::Kind::kArray || field.kind == RowField::Kind::kIterable;
  size_t parts = container ? 1 : field.kind == RowField::Kind::kMap ? 2 : 0;
  if (field.kind == RowField::Kind::kRow) parts = Take(in) % 4;
  if (depth == 0) parts = 0;
  if (depth == 0 && (container || field.kind == RowField::Kind::kMap)) {
    field.kind = RowField::Kind::kInt64;
  }
  for (size_t i = 0; i < parts; ++i) field.fields.push_back(FieldFrom(in, depth - 1));
  return field;
}

CoderPtr CoderFrom(std::string_view& in, int depth) {
  static constexpr std::string_view kUrns[] = {
      kBytesUrn,          kStringUrn,     kBoolUrn,
      kVarintUrn,         kDoubleUrn,     kGlobalWindowUrn,
      kIntervalWindowUrn, "urn:opaque",   kNullableUrn,
      kLengthPrefixUrn,   kIterableUrn,   kStateBackedIterableUrn,
      kCustomWindowUrn,   kShardedKeyUrn, kKvUrn,
      kWindowedValueUrn,  kTimerUrn,
  };
  const uint8_t byte = Take(in);
  if (byte % 18 == 17) {
    RowSchema schema;
    for (int i = Take(in) % 4; i > 0; --i) schema.fields.push_back(FieldFrom(in, 3));
    return MakeRowCoder(kRowUrn, {}, schema).value_or(nullptr);
  }
  const size_t pick = depth == 0 ? byte % 8 : byte % 18;
  std::vector<CoderPtr> components;
  for (size_t i = pick < 8 ? 0 : pick < 14 ? 1 : 2; i > 0; --i) {
    components.push_back(CoderFrom(in, depth - 1));
  }
  return MakeCoder(kUrns[pick], {}, std::move(components)).value_or(nullptr);
}

void Expect(bool condition) {
  if (!condition) std::abort();
}

void Walk(std::string_view in) {
  const CoderPtr coder = CoderFrom(in, 4);
  if (coder == nullptr) return;
  std::string_view rest = in;
  if (Skip(*coder, rest)) {
    Expect(IsKnown(*coder) || coder->kind != Coder::Kind::kOpaque);
    std::string_view again = in.substr(0, in.size() - rest.size());
    Expect(Skip(*coder, again) && again.empty());
  }
  std::string nested;
  if (AppendNestedFromOuter(*coder, in, nested)) {
    std::string_view again = nested;
    Expect(Skip(*coder, again) && again.empty());
  }
  for (const bool want_key : {false, true}) {
    ElementReader reader(*coder, want_key);
    reader.Reset(in);
    ElementView element;
    size_t total = 0;
    while (reader.Next(&element)) {
      total += element.whole.size();
      Expect(!element.whole.empty());
      Expect(element.header.size() + element.value.size() == element.whole.size());
      Expect(!want_key || element.key.size() + element.kv_value.size() == element.value.size());
    }
    Expect(total + reader.rest().size() == in.size());
  }
}

}  // namespace
}  // namespace millrace::coders

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::coders::Walk({reinterpret_cast<const char*>(data), size});
  return 0;
}
