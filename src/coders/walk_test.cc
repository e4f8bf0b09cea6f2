#include "coders/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>

#include "coders/encode.h"

namespace millrace::coders {
namespace {

using Kind = Coder::Kind;
using windowing::AppendHeader;
using windowing::Millis;
using windowing::Pane;
using windowing::PaneTiming;
using windowing::Window;

CoderPtr Make(std::string_view urn, std::vector<CoderPtr> components = {},
              std::string payload = {}) {
  StatusOr<CoderPtr> coder = MakeCoder(urn, std::move(payload), std::move(components));
  EXPECT_TRUE(coder.ok()) << coder.status();
  return coder.value_or(nullptr);
}

CoderPtr KvElements() {
  return WindowedValueCoder(KvCoder(LeafCoder(Kind::kBytes), LeafCoder(Kind::kVarint)),
                            LeafCoder(Kind::kIntervalWindow));
}

TEST(CoderTest, TreesComeFromUrns) {
  const CoderPtr coder = Make(kKvUrn, {Make(kBytesUrn), Make(kDoubleUrn)});
  EXPECT_EQ(coder->kind, Kind::kKv);
  EXPECT_EQ(coder->min_size, 9u);
  EXPECT_EQ(coder->depth, 2u);
  EXPECT_TRUE(SameCoder(*coder, *KvCoder(LeafCoder(Kind::kBytes), LeafCoder(Kind::kDouble))));
  EXPECT_FALSE(SameCoder(*coder, *KvCoder(LeafCoder(Kind::kBytes), LeafCoder(Kind::kVarint))));
  EXPECT_EQ(KindOf("beam:coders:javasdk:0.1"), Kind::kOpaque);
  EXPECT_EQ(KindOf(kSchemaUrn), Kind::kRow);
}

TEST(CoderTest, KnownMeansCuttable) {
  const CoderPtr pickle = Make("beam:coder:pickled_python:v1", {}, "p");
  EXPECT_FALSE(IsKnown(*pickle));
  EXPECT_TRUE(IsKnown(*LengthPrefixed(pickle)));
  EXPECT_FALSE(IsKnown(*KvCoder(LeafCoder(Kind::kBytes), pickle)));
  EXPECT_TRUE(IsKnown(*KvCoder(LeafCoder(Kind::kBytes), LengthPrefixed(pickle))));
  EXPECT_FALSE(IsKnown(*WindowedValueCoder(LeafCoder(Kind::kBytes), LengthPrefixed(pickle))));
  const CoderPtr custom = Make(kCustomWindowUrn, {LengthPrefixed(pickle)});
  EXPECT_TRUE(IsKnown(*WindowedValueCoder(LeafCoder(Kind::kBytes), custom)));
  EXPECT_FALSE(IsKnown(*Make(kRowUrn)));
}

TEST(CoderTest, WrongTreesAreRefused) {
  EXPECT_FALSE(MakeCoder(kKvUrn, {}, {LeafCoder(Kind::kBytes)}).ok());
  EXPECT_FALSE(MakeCoder(kBytesUrn, {}, {LeafCoder(Kind::kBytes)}).ok());
  EXPECT_FALSE(MakeCoder(kIterableUrn, {}, {nullptr}).ok());
  EXPECT_FALSE(MakeCoder(kParamWindowedValueUrn, "short",
                         {LeafCoder(Kind::kBytes), LeafCoder(Kind::kGlobalWindow)})
                   .ok());
  CoderPtr deep = LeafCoder(Kind::kBytes);
  StatusOr<CoderPtr> next = deep;
  int depth = 1;
  for (; next.ok() && depth < 1000; ++depth) next = MakeCoder(kIterableUrn, {}, {*next});
  EXPECT_EQ(depth, 65);
  EXPECT_FALSE(MakeRowCoder(kRowUrn, {}, {{{.kind = RowField::Kind::kArray}}}).ok());
  EXPECT_FALSE(MakeRowCoder(kRowUrn, {},
                            {{{.kind = RowField::Kind::kLogicalCoder,
                               .coder = LeafCoder(Kind::kGlobalWindow)}}})
                   .ok());
}

TEST(WalkTest, KvIsSplitWithoutDecoding) {
  const CoderPtr kv = KvCoder(IterableCoder(LeafCoder(Kind::kVarint)), LeafCoder(Kind::kBytes));
  std::string key;
  AppendIterableHead(key, 2);
  AppendVarint(key, int64_t{300});
  AppendVarint(key, int64_t{-1});
  std::string value;
  AppendBytes(value, "v");
  std::string_view found_key;
  std::string_view found_value;
  const std::string whole = key + value;
  ASSERT_TRUE(SplitKv(*kv, whole, &found_key, &found_value));
  EXPECT_EQ(found_key, key);
  EXPECT_EQ(found_value, value);
  EXPECT_FALSE(SplitKv(*kv, whole + "x", &found_key, &found_value));
  EXPECT_FALSE(SplitKv(*LeafCoder(Kind::kBytes), whole, &found_key, &found_value));
}

TEST(WalkTest, IterablesInAllForms) {
  const CoderPtr known = IterableCoder(LeafCoder(Kind::kVarint));
  const CoderPtr backed = Make(kStateBackedIterableUrn, {LeafCoder(Kind::kVarint)});
  std::string batches;
  AppendBatchedIterableHead(batches);
  AppendBatchHead(batches, 2);
  AppendVarint(batches, int64_t{1});
  AppendVarint(batches, int64_t{2});
  std::string ended = batches;
  AppendBatchedIterableEnd(ended);
  std::string tokened = batches;
  AppendStateBackedEnd(tokened, "token");
  const auto skips = [](const Coder& coder, std::string_view in) {
    return Skip(coder, in) && in.empty();
  };
  EXPECT_TRUE(skips(*known, ended));
  EXPECT_TRUE(skips(*backed, ended));
  EXPECT_FALSE(skips(*known, tokened));
  EXPECT_TRUE(skips(*backed, tokened));
  EXPECT_FALSE(skips(*known, std::string_view("\xff\xff\xff\xfe", 4)));
}

TEST(WalkTest, HugeCountsTakeNoTime) {
  std::string_view in("\x7f\xff\xff\xff", 4);
  EXPECT_FALSE(Skip(*IterableCoder(LeafCoder(Kind::kVarint)), in));
  // Values without bytes: any count is right, and walked at once.
  const CoderPtr empty = KvCoder(LeafCoder(Kind::kGlobalWindow), LeafCoder(Kind::kGlobalWindow));
  in = {"\x7f\xff\xff\xff", 4};
  EXPECT_TRUE(Skip(*IterableCoder(empty), in));
  std::string batch;
  AppendBatchedIterableHead(batch);
  AppendVarint(batch, std::numeric_limits<int64_t>::max());
  AppendBatchedIterableEnd(batch);
  in = batch;
  EXPECT_TRUE(Skip(*IterableCoder(empty), in));
}

TEST(WalkTest, RowsWithNullsAndNewFields) {
  RowSchema schema;
  schema.fields.push_back({.kind = RowField::Kind::kString, .nullable = true});
  schema.fields.push_back({.kind = RowField::Kind::kInt64});
  const CoderPtr row = MakeRowCoder(kRowUrn, {}, schema).value_or(nullptr);
  const auto skips = [&row](std::string_view in) { return Skip(*row, in) && in.empty(); };
  EXPECT_TRUE(skips(std::string_view("\x02\x00\x01s\x07", 5)));
  EXPECT_TRUE(skips(std::string_view("\x02\x01\x01\x07", 4)));
  EXPECT_FALSE(skips(std::string_view("\x02\x01\x02\x01s", 5)));  // null where none may be
  EXPECT_TRUE(skips(std::string_view("\x01\x00\x01s", 4)));       // written by an older schema
  EXPECT_FALSE(skips(std::string_view("\x03\x00\x01s\x07\x07", 6)));
}

TEST(ElementReaderTest, CutsAFrameIntoKeysAndValues) {
  const CoderPtr coder = KvElements();
  std::string frame;
  for (int i = 0; i < 3; ++i) {
    AppendHeader(frame, 10 * i + 4, Window::Interval(10 * i, 10 * i + 10),
                 Pane{i == 0, false, PaneTiming::kOnTime, i, i});
    AppendBytes(frame, "key" + std::to_string(i));
    AppendVarint(frame, int64_t{1000} + i);
  }
  ElementReader reader(*coder, /*want_key=*/true);
  reader.Reset(frame);
  ElementView element;
  size_t total = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(reader.Next(&element));
    EXPECT_EQ(element.timestamp, 10 * i + 4);
    ASSERT_EQ(element.windows.size(), 1u);
    EXPECT_EQ(element.windows[0], Window::Interval(10 * i, 10 * i + 10));
    EXPECT_EQ(element.pane.index, i);
    EXPECT_EQ(element.key, "\x04key" + std::to_string(i));
    std::string_view value = element.kv_value;
    int64_t number = 0;
    ASSERT_TRUE(ParseVarint(value, &number));
    EXPECT_EQ(number, 1000 + i);
    EXPECT_EQ(
        std::string(element.header) + std::string(element.key) + std::string(element.kv_value),
        element.whole);
    EXPECT_EQ(std::string(element.header) + std::string(element.value), element.whole);
    total += element.whole.size();
  }
  EXPECT_FALSE(reader.Next(&element));
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(total, frame.size());
}

TEST(ElementReaderTest, StopsAtAMalformedElement) {
  const CoderPtr coder = KvElements();
  std::string frame;
  AppendHeader(frame, 4, Window::Interval(0, 10), Pane::NoFiring());
  AppendBytes(frame, "key");
  AppendVarint(frame, int64_t{1});
  const size_t good = frame.size();
  frame += "rubbish";
  ElementReader reader(*coder, /*want_key=*/true);
  reader.Reset(frame);
  ElementView element;
  EXPECT_TRUE(reader.Next(&element));
  EXPECT_FALSE(reader.Next(&element));
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.rest(), frame.substr(good));
  EXPECT_FALSE(reader.Next(&element));
  reader.Reset(std::string_view(frame).substr(0, good));
  EXPECT_TRUE(reader.Next(&element));
  EXPECT_TRUE(reader.ok());
}

TEST(ElementReaderTest, CustomAndManyWindows) {
  const CoderPtr coder = WindowedValueCoder(
      LeafCoder(Kind::kBytes), Make(kCustomWindowUrn, {LengthPrefixed(Make("urn:mine"))}));
  std::string encoded;
  windowing::AppendInstant(encoded, 99);
  AppendBytes(encoded, "bounds");
  const std::array<Window, 2> windows = {Window::Custom(99, encoded), Window::Custom(99, encoded)};
  std::string frame;
  AppendHeader(frame, 4, windows, Pane::NoFiring());
  AppendBytes(frame, "value");
  ElementReader reader(*coder, /*want_key=*/false);
  reader.Reset(frame);
  ElementView element;
  ASSERT_TRUE(reader.Next(&element));
  ASSERT_EQ(element.windows.size(), 2u);
  EXPECT_EQ(element.windows[1], windows[1]);
  EXPECT_EQ(element.value, "\x05value");
}

TEST(ElementReaderTest, UnfitCodersGiveNothing) {
  ElementView element;
  const auto reads = [&](const Coder& coder, bool want_key) {
    ElementReader reader(coder, want_key);
    reader.Reset("x");
    return reader.Next(&element) || reader.ok();
  };
  EXPECT_FALSE(reads(*LeafCoder(Kind::kBytes), false));
  EXPECT_FALSE(
      reads(*WindowedValueCoder(LeafCoder(Kind::kBytes), LeafCoder(Kind::kGlobalWindow)), true));
  EXPECT_FALSE(reads(*WindowedValueCoder(Make("urn:mine"), LeafCoder(Kind::kGlobalWindow)), false));
  std::string header;
  AppendHeader(header, 4, Window::Global(), Pane::NoFiring());
  EXPECT_FALSE(reads(*Make(kParamWindowedValueUrn,
                           {LeafCoder(Kind::kGlobalWindow), LeafCoder(Kind::kGlobalWindow)},
                           header + std::string(1, '\0')),
                     false));
}

TEST(OuterContextTest, LastPartLosesItsLength) {
  const CoderPtr coder =
      KvCoder(LeafCoder(Kind::kString), KvCoder(LeafCoder(Kind::kVarint), LeafCoder(Kind::kBytes)));
  std::string nested;
  ASSERT_TRUE(AppendNestedFromOuter(*coder, "\x01k\x07rest of it", nested));
  EXPECT_EQ(nested, "\x01k\x07\x0arest of it");
  std::string out;
  EXPECT_FALSE(AppendNestedFromOuter(*LeafCoder(Kind::kVarint), "\x01\x01", out));
  EXPECT_FALSE(AppendNestedFromOuter(*Make("urn:mine"), "x", out));
}

// ---- Random trees and bytes ---------------------------------------------------------------------

CoderPtr RandomCoder(std::mt19937& random, int depth) {
  static constexpr Kind kLeaves[] = {Kind::kBytes,          Kind::kString, Kind::kBool,
                                     Kind::kVarint,         Kind::kDouble, Kind::kGlobalWindow,
                                     Kind::kIntervalWindow, Kind::kInstant};
  static constexpr std::string_view kUnary[] = {kNullableUrn,     kLengthPrefixUrn,
                                                kIterableUrn,     kStateBackedIterableUrn,
                                                kCustomWindowUrn, kShardedKeyUrn};
  if (depth == 0 || random() % 4 == 0) return LeafCoder(kLeaves[random() % std::size(kLeaves)]);
  const size_t pick = random() % 9;
  if (pick < 6) return Make(kUnary[pick], {RandomCoder(random, depth - 1)});
  if (pick == 6) return KvCoder(RandomCoder(random, depth - 1), RandomCoder(random, depth - 1));
  return Make(pick == 7 ? kWindowedValueUrn : kTimerUrn,
              {RandomCoder(random, depth - 1),
               LeafCoder(random() % 2 == 0 ? Kind::kGlobalWindow : Kind::kIntervalWindow)});
}

// Bytes that are likely to be counts, flags and short lengths.
std::string RandomBytes(std::mt19937& random) {
  static constexpr unsigned char kLikely[] = {0, 0, 0, 0, 1, 1, 2, 3, 0x0f, 0x80, 0xff, 0xff};
  std::string bytes(random() % 40, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random() % 3 == 0 ? random() : kLikely[random() % std::size(kLikely)]);
  }
  return bytes;
}

TEST(WalkTest, RandomBytesStayInBounds) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    const CoderPtr coder = RandomCoder(random, 3);
    const std::string bytes = RandomBytes(random);
    const std::unique_ptr<char[]> exact(new char[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    std::string_view in(exact.get(), bytes.size());
    const std::string_view before = in;
    if (!Skip(*coder, in)) continue;
    ++accepted;
    ASSERT_LE(in.size(), before.size());
    ASSERT_EQ(in.data() + in.size(), before.data() + before.size());
    const size_t size = before.size() - in.size();
    ASSERT_GE(size, coder->min_size);
    if (coder->fixed_size != Coder::kVariable) {
      ASSERT_EQ(size, coder->fixed_size);
    }
    // A value's end does not depend on what follows it.
    std::string_view alone = before.substr(0, size);
    ASSERT_TRUE(Skip(*coder, alone));
    ASSERT_TRUE(alone.empty());
  }
  EXPECT_GT(accepted, 10'000);
}

}  // namespace
}  // namespace millrace::coders
