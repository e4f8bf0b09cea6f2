#include "net/gzip.h"

#include <gtest/gtest.h>

namespace millrace::net {
namespace {

TEST(Gzip, RoundTrip) {
  for (size_t size : {0ul, 1ul, 4095ul, 4096ul, 4097ul, 3000000ul}) {
    std::string plain(size, 'x');
    for (size_t i = 0; i < size; i += 7) plain[i] = static_cast<char>(i * 31);
    auto back = Gunzip(Gzip(plain), size);
    ASSERT_TRUE(back.ok()) << size << ": " << back.status();
    EXPECT_TRUE(*back == plain) << size;
  }
}

TEST(Gzip, SeveralMembers) {
  auto back = Gunzip(Gzip("one ") + Gzip("") + Gzip("two"), 100);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, "one two");
}

TEST(Gzip, LimitIsOnWhatComesOut) {
  std::string bomb = Gzip(std::string(50 << 20, '\0'));
  EXPECT_LT(bomb.size(), 100000u);
  EXPECT_EQ(Gunzip(bomb, 1 << 20).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Gunzip(Gzip("abcd"), 3).status().code(), StatusCode::kResourceExhausted);
}

TEST(Gzip, DamagedOrCutShort) {
  std::string packed = Gzip("some text that is long enough to be packed");
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_EQ(Gunzip(packed.substr(0, size), 1000).status().code(), StatusCode::kInvalidArgument)
        << size;
  }
  std::string wrong_crc = packed;
  wrong_crc[packed.size() - 8] ^= 1;
  EXPECT_EQ(Gunzip(wrong_crc, 1000).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Gunzip(packed + "tail", 1000).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Gunzip("plain text", 1000).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::net
