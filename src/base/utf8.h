// UTF-8 as RFC 3629 has it: no surrogates, nothing overlong, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace millrace {

inline bool IsAscii(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  const char* p = text.data();
  size_t size = text.size();
  if (size < 8) {
    uint8_t all = 0;
    for (size_t i = 0; i < size; ++i) all |= static_cast<uint8_t>(p[i]);
    return all < 0x80;
  }
  uint64_t all;  // the last eight bytes, overlapping what the loop sees
  std::memcpy(&all, p + size - 8, 8);
  for (size_t i = 0; i + 8 < size; i += 8) {
    uint64_t word;
    std::memcpy(&word, p + i, 8);
    all |= word;
  }
  return (all & kHighBits) == 0;
}

bool IsWellFormedUtf8(std::string_view text);
inline bool IsValidUtf8(std::string_view text) { return IsAscii(text) || IsWellFormedUtf8(text); }

// Takes the first code point off the front of valid, non-empty UTF-8.
uint32_t TakeCodePoint(std::string_view* text);

}  // namespace millrace
