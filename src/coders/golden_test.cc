// Beam's own vectors for its standard coders, in both contexts.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "coders/encode.h"
#include "coders/golden_yaml.h"
#include "coders/walk.h"

namespace millrace::coders {
namespace {

using windowing::Millis;
using windowing::Pane;
using windowing::PaneTiming;
using windowing::Window;

std::vector<Yaml> Documents() {
  std::ifstream file(MR_STANDARD_CODERS, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return ReadYamlDocuments(text.str());
}

// ---- The Schema proto of row coders, read field by field ----------------------------------------

struct ProtoField {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

std::vector<ProtoField> ProtoFields(std::string_view in) {
  std::vector<ProtoField> fields;
  while (!in.empty()) {
    ProtoField field;
    uint64_t tag = 0;
    if (!ParseVarint(in, &tag)) break;
    field.number = tag >> 3;
    if ((tag & 7) == 2 ? !ParseBytes(in, &field.bytes) : !ParseVarint(in, &field.value)) break;
    fields.push_back(field);
  }
  return fields;
}

RowSchema SchemaOf(std::string_view proto);

RowField FieldTypeOf(std::string_view proto);

RowField LogicalFieldOf(std::string_view proto) {
  RowField field;
  std::string urn;
  for (const ProtoField& part : ProtoFields(proto)) {
    if (part.number == 1) urn = part.bytes;
    if (part.number == 3) field = FieldTypeOf(part.bytes);
  }
  if (urn == "beam:logical_type:millis_instant:v1") {
    field.kind = RowField::Kind::kLogicalCoder;
    field.coder = LeafCoder(Coder::Kind::kInstant);
  } else if (urn == "beam:logical_type:decimal:v1") {
    field.kind = RowField::Kind::kLogicalCoder;
    field.coder = KvCoder(LeafCoder(Coder::Kind::kVarint), LeafCoder(Coder::Kind::kBytes));
  }
  return field;
}

RowField FieldTypeOf(std::string_view proto) {
  using Kind = RowField::Kind;
  static constexpr Kind kAtomic[] = {Kind::kBytes,   Kind::kByte,  Kind::kInt16,  Kind::kInt32,
                                     Kind::kInt64,   Kind::kFloat, Kind::kDouble, Kind::kString,
                                     Kind::kBoolean, Kind::kBytes};
  RowField field;
  bool nullable = false;
  for (const ProtoField& part : ProtoFields(proto)) {
    if (part.number == 1) nullable = part.value != 0;
    if (part.number == 2) field.kind = kAtomic[part.value];
    if (part.number == 3 || part.number == 5) {
      field.kind = part.number == 3 ? Kind::kArray : Kind::kMap;
      for (const ProtoField& item : ProtoFields(part.bytes)) {
        field.fields.push_back(FieldTypeOf(item.bytes));
      }
    }
    if (part.number == 6) {
      field.kind = Kind::kRow;
      field.fields = SchemaOf(ProtoFields(part.bytes)[0].bytes).fields;
    }
    if (part.number == 7) field = LogicalFieldOf(part.bytes);
  }
  field.nullable = nullable;
  return field;
}

RowSchema SchemaOf(std::string_view proto) {
  std::map<uint64_t, RowField> by_position;
  uint64_t next = 0;
  for (const ProtoField& part : ProtoFields(proto)) {
    if (part.number != 1) continue;
    uint64_t position = next++;
    RowField field;
    bool placed = false;
    for (const ProtoField& inner : ProtoFields(part.bytes)) {
      if (inner.number == 3) field = FieldTypeOf(inner.bytes);
      if (inner.number == 5) {
        position = inner.value;
        placed = true;
      }
    }
    // Proto3 leaves out position 0 of a schema with positions.
    if (!placed && by_position.contains(position)) position = 0;
    by_position[position] = field;
  }
  RowSchema schema;
  for (auto& [position, field] : by_position) schema.fields.push_back(field);
  return schema;
}

CoderPtr CoderOf(const Yaml& spec) {
  const std::string urn = spec.At("urn").text;
  const std::string payload = BytesOf(spec.At("payload").text);
  if (KindOf(urn) == Coder::Kind::kRow) {
    return MakeRowCoder(urn, payload, SchemaOf(payload)).value_or(nullptr);
  }
  std::vector<CoderPtr> components;
  for (const Yaml& component : spec.At("components").items) {
    components.push_back(CoderOf(component));
  }
  return MakeCoder(urn, payload, components).value_or(nullptr);
}

// ---- Values as the file writes them, to nested bytes --------------------------------------------

Window WindowOf(const Yaml& value) {
  if (value.kind == Yaml::Kind::kScalar) return Window::Global();
  const Millis end = std::stoll(value.At("end").text);
  return Window::Interval(end - std::stoll(value.At("span").text), end);
}

std::vector<Window> WindowsOf(const Yaml& value) {
  std::vector<Window> windows;
  for (const Yaml& item : value.items) windows.push_back(WindowOf(item));
  return windows;
}

Pane PaneOf(const Yaml& value) {
  static const std::map<std::string, PaneTiming> kTimings = {{"EARLY", PaneTiming::kEarly},
                                                             {"ON_TIME", PaneTiming::kOnTime},
                                                             {"LATE", PaneTiming::kLate},
                                                             {"UNKNOWN", PaneTiming::kUnknown}};
  return {value.At("is_first").text == "true", value.At("is_last").text == "true",
          kTimings.at(value.At("timing").text), std::stoll(value.At("index").text),
          std::stoll(value.At("on_time_index").text)};
}

double DoubleOf(const std::string& text) {
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::strtod(text.c_str(), nullptr);
}

void Encode(const Coder& coder, const Yaml& value, std::string& out);

void EncodeTimer(const Coder& coder, const Yaml& value, std::string& out) {
  std::string key;
  Encode(coder.component(0), value.At("userKey"), key);
  windowing::Timer timer;
  timer.key = key;
  timer.tag = value.At("dynamicTimerTag").text;
  timer.windows = windowing::WindowList(WindowsOf(value.At("windows")));
  timer.clear = value.At("clearBit").text == "true";
  if (!timer.clear) {
    timer.fire = std::stoll(value.At("fireTimestamp").text);
    timer.hold = std::stoll(value.At("holdTimestamp").text);
    timer.pane = PaneOf(value.At("pane"));
  }
  windowing::AppendTimer(out, timer);
}

void Encode(const Coder& coder, const Yaml& value, std::string& out) {
  using Kind = Coder::Kind;
  switch (coder.kind) {
    case Kind::kBytes:
    case Kind::kString:
      return AppendBytes(out, value.text);
    case Kind::kBool:
      return AppendBool(out, value.text == "true");
    case Kind::kVarint:
      return AppendVarint(out, static_cast<int64_t>(std::stoll(value.text)));
    case Kind::kDouble:
      return AppendDouble(out, DoubleOf(value.text));
    case Kind::kKv:
      Encode(coder.component(0), value.At("key"), out);
      return Encode(coder.component(1), value.At("value"), out);
    case Kind::kNullable:
      AppendBool(out, value.kind != Yaml::Kind::kNull);
      if (value.kind != Yaml::Kind::kNull) Encode(coder.component(0), value, out);
      return;
    case Kind::kIterable:
    case Kind::kStateBackedIterable:
      AppendIterableHead(out, value.items.size());
      for (const Yaml& item : value.items) Encode(coder.component(0), item, out);
      return;
    case Kind::kGlobalWindow:
      return;
    case Kind::kIntervalWindow:
      return windowing::AppendWindow(out, WindowOf(value));
    case Kind::kCustomWindow: {
      const Window inner = WindowOf(value.At("window"));
      windowing::AppendInstant(out, inner.MaxTimestamp());
      return windowing::AppendWindow(out, inner);
    }
    case Kind::kWindowedValue:
      windowing::AppendHeader(out, std::stoll(value.At("timestamp").text),
                              WindowsOf(value.At("windows")), PaneOf(value.At("pane")));
      return Encode(coder.component(0), value.At("value"), out);
    case Kind::kParamWindowedValue:
      return Encode(coder.component(0), value.At("value"), out);
    case Kind::kTimer:
      return EncodeTimer(coder, value, out);
    case Kind::kShardedKey:
      AppendBytes(out, value.At("shardId").text);
      return Encode(coder.component(0), value.At("key"), out);
    default:
      FAIL() << "no encoding of " << coder.urn;
  }
}

// ---- Checks -------------------------------------------------------------------------------------

void ExpectCuts(const Coder& coder, const std::string& nested) {
  const std::string tail = "\x05tail";
  const std::string input = nested + tail;
  std::string_view in = input;
  std::string_view value;
  ASSERT_TRUE(Cut(coder, in, &value));
  EXPECT_EQ(value, nested);
  EXPECT_EQ(in, tail);
  for (size_t size = 0; size < nested.size(); ++size) {
    // A copy of its own, so that a read past the end meets the sanitizer's guard.
    const std::unique_ptr<char[]> part(new char[size]);
    std::copy_n(nested.data(), size, part.get());
    std::string_view prefix(part.get(), size);
    EXPECT_FALSE(Skip(coder, prefix)) << "accepted " << size << " of " << nested.size();
  }
}

void ExpectElement(const Coder& coder, const std::string& nested, const Yaml& value) {
  const std::string frame = nested + nested;
  ElementReader reader(coder, /*want_key=*/false);
  reader.Reset(frame);
  ElementView element;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reader.Next(&element));
    EXPECT_EQ(element.whole, nested);
    EXPECT_EQ(element.timestamp, std::stoll(value.At("timestamp").text));
    EXPECT_EQ(std::vector(element.windows.begin(), element.windows.end()),
              WindowsOf(value.At("windows")));
    EXPECT_EQ(element.pane, PaneOf(value.At("pane")));
    std::string expected;
    Encode(coder.component(0), value.At("value"), expected);
    EXPECT_EQ(element.value, expected);
    std::string header;
    windowing::AppendHeader(header, element.timestamp, element.windows, element.pane);
    EXPECT_EQ(element.header, header);
  }
  EXPECT_FALSE(reader.Next(&element));
  EXPECT_TRUE(reader.ok());
}

void ExpectTimer(const Coder& coder, const std::string& nested) {
  std::string_view in = nested;
  windowing::Timer timer;
  ASSERT_TRUE(windowing::ParseTimer(in, WalkerOf(coder.component(0)), FormatOf(coder.component(1)),
                                    &timer));
  EXPECT_TRUE(in.empty());
  std::string again;
  windowing::AppendTimer(again, timer);
  EXPECT_EQ(again, nested);
}

void CheckExample(const Coder& coder, const std::string& nested, const Yaml& value,
                  bool deterministic) {
  ExpectCuts(coder, nested);
  if (coder.kind == Coder::Kind::kRow) return;
  if (deterministic) {
    std::string encoded;
    Encode(coder, value, encoded);
    EXPECT_EQ(encoded, nested);
  }
  if (coder.kind == Coder::Kind::kWindowedValue || coder.kind == Coder::Kind::kParamWindowedValue) {
    ExpectElement(coder, nested, value);
  }
  if (coder.kind == Coder::Kind::kTimer) ExpectTimer(coder, nested);
}

TEST(GoldenTest, AllStandardCodersInBothContexts) {
  int coders = 0;
  int examples = 0;
  for (const Yaml& document : Documents()) {
    const Yaml& spec = document.At("coder");
    const CoderPtr coder = CoderOf(spec);
    ASSERT_NE(coder, nullptr) << spec.At("urn").text;
    SCOPED_TRACE(coder->urn);
    EXPECT_TRUE(IsKnown(*coder));
    ++coders;
    const bool deterministic = spec.Find("non_deterministic") == nullptr;
    const std::string contexts = document.At("nested").text;
    for (const auto& [key, value] : document.At("examples").entries) {
      const std::string bytes = BytesOf(key);
      SCOPED_TRACE(testing::PrintToString(bytes));
      ++examples;
      if (contexts != "false") CheckExample(*coder, bytes, value, deterministic);
      if (contexts != "true") {
        std::string nested;
        ASSERT_TRUE(AppendNestedFromOuter(*coder, bytes, nested));
        CheckExample(*coder, nested, value, deterministic);
      }
    }
  }
  // As in Beam 2.73; more is fine.
  EXPECT_GE(coders, 45);
  EXPECT_GE(examples, 124);
}

TEST(GoldenTest, PayloadSchemasAreReadByPosition) {
  for (const Yaml& document : Documents()) {
    if (document.At("coder").At("payload").text.find("30ea5a25") == std::string::npos) continue;
    const CoderPtr coder = CoderOf(document.At("coder"));
    ASSERT_EQ(coder->row->fields.size(), 3u);
    EXPECT_EQ(coder->row->fields[0].kind, RowField::Kind::kInt32);
    EXPECT_EQ(coder->row->fields[1].kind, RowField::Kind::kString);
    EXPECT_EQ(coder->row->fields[2].kind, RowField::Kind::kBoolean);
  }
}

}  // namespace
}  // namespace millrace::coders
