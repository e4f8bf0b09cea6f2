#include "windowing/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace millrace::windowing {
namespace {

std::string Varint(int64_t value) {
  std::string out;
  AppendVarint(out, value);
  return out;
}

TEST(VarintTest, NegativeTakesTenBytes) {
  EXPECT_EQ(Varint(0), std::string(1, '\0'));
  EXPECT_EQ(Varint(127), "\x7f");
  EXPECT_EQ(Varint(200), "\xc8\x01");
  EXPECT_EQ(Varint(-1), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(VarintTest, RoundTripsAtEveryLength) {
  for (int bits = 0; bits < 64; ++bits) {
    for (const int64_t value : {int64_t{1} << bits, ~(int64_t{1} << bits)}) {
      const std::string bytes = Varint(value);
      std::string_view in = bytes;
      int64_t back = 0;
      ASSERT_TRUE(ParseVarint(in, &back));
      EXPECT_EQ(back, value);
      EXPECT_TRUE(in.empty());
      std::string_view cut = std::string_view(bytes).substr(0, bytes.size() - 1);
      EXPECT_FALSE(ParseVarint(cut, &back));
    }
  }
}

TEST(VarintTest, MoreThan64BitsAreRefused) {
  uint64_t value = 0;
  std::string_view eleven = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  EXPECT_FALSE(ParseVarint(eleven, &value));
  std::string_view large = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02";
  EXPECT_FALSE(ParseVarint(large, &value));
}

TEST(InstantTest, BytesSortAsTime) {
  std::string previous;
  for (const Millis time :
       {std::numeric_limits<Millis>::min(), kMinTimestamp, Millis{-1}, Millis{0}, Millis{1},
        kGlobalWindowMax, kMaxTimestamp, std::numeric_limits<Millis>::max()}) {
    std::string bytes;
    AppendInstant(bytes, time);
    EXPECT_LT(previous, bytes);
    std::string_view in = bytes;
    Millis back = 0;
    ASSERT_TRUE(ParseInstant(in, &back));
    EXPECT_EQ(back, time);
    previous = bytes;
  }
  std::string zero;
  AppendInstant(zero, 0);
  EXPECT_EQ(zero, std::string("\x80\0\0\0\0\0\0\0", 8));
}

TEST(WindowTest, IntervalIsEndAndSpan) {
  std::string bytes;
  AppendWindow(bytes, Window::Interval(1000, 1500));
  EXPECT_EQ(bytes, std::string("\x80\0\0\0\0\0\x05\xdc\xf4\x03", 10));
}

TEST(WindowTest, ImpossibleIntervalsAreRefused) {
  Window window;
  std::string negative_span;
  AppendInstant(negative_span, 10);
  AppendVarint(negative_span, int64_t{-1});
  std::string_view in = negative_span;
  EXPECT_FALSE(ParseWindow(in, WindowKind::kInterval, &window));
  std::string underflow;
  AppendInstant(underflow, std::numeric_limits<Millis>::min());
  AppendVarint(underflow, int64_t{1});
  in = underflow;
  EXPECT_FALSE(ParseWindow(in, WindowKind::kInterval, &window));
}

TEST(WindowTest, CustomKeepsItsBytesAndMaximum) {
  std::string bytes;
  AppendInstant(bytes, 41);
  AppendBytes(bytes, "opaque");
  const std::string input = bytes + "rest";
  std::string_view in = input;
  Window window;
  ASSERT_TRUE(ParseWindow(in, WindowKind::kCustom, &window));
  EXPECT_EQ(in, "rest");
  EXPECT_EQ(window.kind, WindowKind::kCustom);
  EXPECT_EQ(window.MaxTimestamp(), 41);
  std::string again;
  AppendWindow(again, window);
  EXPECT_EQ(again, bytes);
}

TEST(WindowTest, ListsOfUnknownLengthAreRead) {
  std::string bytes("\xff\xff\xff\xff", 4);
  AppendVarint(bytes, int64_t{1});
  AppendWindow(bytes, Window::Interval(0, 10));
  AppendVarint(bytes, int64_t{2});
  AppendWindow(bytes, Window::Interval(10, 20));
  AppendWindow(bytes, Window::Interval(20, 30));
  AppendVarint(bytes, int64_t{0});
  std::string_view in = bytes;
  WindowList windows;
  ASSERT_TRUE(ParseWindows(in, WindowKind::kInterval, &windows));
  EXPECT_TRUE(in.empty());
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[2], Window::Interval(20, 30));
}

TEST(WindowTest, HugeCountsCostNothing) {
  WindowList windows;
  std::string_view many("\x7f\xff\xff\xff", 4);
  EXPECT_FALSE(ParseWindows(many, WindowKind::kInterval, &windows));
  many = {"\x7f\xff\xff\xff", 4};
  EXPECT_FALSE(ParseWindows(many, WindowKind::kGlobal, &windows));
  // Batches of global windows whose count wraps around with the one already read.
  many = {"\xff\xff\xff\xff\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", 16};
  EXPECT_FALSE(ParseWindows(many, WindowKind::kGlobal, &windows));
  many = {"\x80\0\0\0", 4};
  EXPECT_FALSE(ParseWindows(many, WindowKind::kGlobal, &windows));
}

TEST(PaneTest, NoFiringIsOneByte) {
  std::string bytes;
  AppendPane(bytes, Pane::NoFiring());
  EXPECT_EQ(bytes, "\x0f");
}

TEST(PaneTest, ShortestFormIsChosen) {
  struct Case {
    Pane pane;
    std::string bytes;
  };
  const Case cases[] = {
      {{true, false, PaneTiming::kOnTime, 0, 0}, "\x05"},
      {{true, false, PaneTiming::kEarly, 0, -1}, std::string("\x11\0", 2)},
      {{false, false, PaneTiming::kEarly, 3, -1}, std::string("\x10\x03", 2)},
      {{false, false, PaneTiming::kLate, 3, 3}, std::string("\x18\x03", 2)},
      {{false, true, PaneTiming::kLate, 5, 2}, std::string("\x2a\x05\x02", 3)},
  };
  for (const Case& c : cases) {
    std::string bytes;
    AppendPane(bytes, c.pane);
    EXPECT_EQ(bytes, c.bytes);
    std::string_view in = bytes;
    Pane back;
    std::string_view metadata;
    ASSERT_TRUE(ParsePane(in, &back, &metadata));
    EXPECT_EQ(back, c.pane);
    EXPECT_TRUE(metadata.empty());
  }
}

TEST(PaneTest, MetadataFollowsThePane) {
  std::string_view in = std::string_view("\x8f\x02\x08\x01rest", 8);
  Pane pane;
  std::string_view metadata;
  ASSERT_TRUE(ParsePane(in, &pane, &metadata));
  EXPECT_EQ(pane, Pane::NoFiring());
  EXPECT_EQ(metadata, "\x08\x01");
  EXPECT_EQ(in, "rest");
}

TEST(HeaderTest, OneObjectReadsManyShapes) {
  const std::array<Window, 2> two = {Window::Interval(0, 10), Window::Interval(5, 15)};
  std::string bytes;
  AppendHeader(bytes, 7, two[0], Pane::NoFiring());
  AppendHeader(bytes, 8, two, Pane{true, false, PaneTiming::kEarly, 0, -1});
  AppendHeader(bytes, 9, std::span<const Window>(), Pane::NoFiring());
  AppendHeader(bytes, 10, two[1], Pane::NoFiring());
  std::string_view in = bytes;
  Header header;
  ASSERT_TRUE(ParseHeader(in, WindowKind::kInterval, &header));
  EXPECT_EQ(header.timestamp, 7);
  ASSERT_EQ(header.windows.size(), 1u);
  ASSERT_TRUE(ParseHeader(in, WindowKind::kInterval, &header));
  ASSERT_EQ(header.windows.size(), 2u);
  EXPECT_EQ(header.windows[1], two[1]);
  EXPECT_EQ(header.pane.nonspeculative_index, -1);
  ASSERT_TRUE(ParseHeader(in, WindowKind::kInterval, &header));
  EXPECT_TRUE(header.windows.empty());
  ASSERT_TRUE(ParseHeader(in, WindowKind::kInterval, &header));
  ASSERT_EQ(header.windows.size(), 1u);
  EXPECT_EQ(header.windows[0], two[1]);
  EXPECT_TRUE(in.empty());
}

TEST(TimerTest, JavaWritesNoHoldPastTheEndOfTime) {
  Timer timer;
  timer.key = std::string_view("\x01k", 2);
  timer.tag = "t";
  timer.windows = WindowList(Window::Interval(0, 10));
  timer.fire = 9;
  timer.hold = kMaxTimestamp + 1;
  EXPECT_FALSE(timer.HasHold());
  std::string bytes;
  AppendTimer(bytes, timer);
  std::string_view in = bytes;
  Timer back;
  ASSERT_TRUE(ParseTimer(in, Walker(), WindowKind::kInterval, &back));
  EXPECT_TRUE(in.empty());
  EXPECT_EQ(back.key, timer.key);
  EXPECT_EQ(back.fire, 9);
  EXPECT_FALSE(back.HasHold());
}

TEST(TimerTest, ClearEndsTheMessage) {
  Timer timer;
  timer.key = std::string_view("\x01k", 2);
  timer.windows = WindowList(Window::Global());
  timer.clear = true;
  std::string bytes;
  AppendTimer(bytes, timer);
  EXPECT_EQ(bytes.size(), 2u + 1 + 4 + 1);
  std::string_view in = bytes;
  Timer back;
  ASSERT_TRUE(ParseTimer(in, Walker(), WindowKind::kGlobal, &back));
  EXPECT_TRUE(back.clear);
  EXPECT_FALSE(back.HasHold());
}

}  // namespace
}  // namespace millrace::windowing
