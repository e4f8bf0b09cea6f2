#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

std::string Encode(uint32_t point) {
  std::string out;
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  constexpr int kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[more] | point >> (6 * more));
  while (more-- > 0) out += static_cast<char>(0x80 | (point >> (6 * more) & 0x3f));
  return out;
}

TEST(Utf8Test, EveryCodePointButSurrogates) {
  for (uint32_t point = 0; point < 0x110010; ++point) {
    std::string text = Encode(point);
    bool valid = point < 0x110000 && (point < 0xd800 || point > 0xdfff);
    ASSERT_EQ(IsValidUtf8(text), valid) << point;
    ASSERT_EQ(IsValidUtf8("1234567" + text + "abcdefghij"), valid) << point;
    if (!valid) continue;
    std::string_view rest = text;
    ASSERT_EQ(TakeCodePoint(&rest), point);
    ASSERT_TRUE(rest.empty());
  }
}

TEST(Utf8Test, BrokenSequences) {
  for (std::string text : {"\x80", "\xc3", "\xc0\x80", "\xe2\x82", "\xe0\x80\x80",
                           "\xf0\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3\xc3", "\xff"}) {
    EXPECT_FALSE(IsValidUtf8(text));
    EXPECT_FALSE(IsValidUtf8("plain text before it " + text));
  }
  EXPECT_TRUE(IsValidUtf8(""));
}

}  // namespace
}  // namespace millrace
