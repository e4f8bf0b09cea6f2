#include "base/utf8.h"

#include <cstring>

namespace millrace {
namespace {

bool IsContinuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Length of the valid sequence of two to four bytes at `p`, 0 if there is none.
size_t SequenceLength(const uint8_t* p, const uint8_t* end) {
  size_t left = end - p;
  uint8_t first = p[0];
  if (first < 0xc2) return 0;
  if (first < 0xe0) return left >= 2 && IsContinuation(p[1]) ? 2 : 0;
  if (first < 0xf0) {
    if (left < 3 || !IsContinuation(p[1]) || !IsContinuation(p[2])) return 0;
    if (first == 0xe0 && p[1] < 0xa0) return 0;
    if (first == 0xed && p[1] >= 0xa0) return 0;
    return 3;
  }
  if (first > 0xf4 || left < 4) return 0;
  if (!IsContinuation(p[1]) || !IsContinuation(p[2]) || !IsContinuation(p[3])) return 0;
  if (first == 0xf0 && p[1] < 0x90) return 0;
  if (first == 0xf4 && p[1] >= 0x90) return 0;
  return 4;
}

}  // namespace

bool IsWellFormedUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* end = p + text.size();
  while (true) {
    while (end - p >= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      if (word & 0x8080808080808080ull) break;
      p += 8;
    }
    while (p < end && *p < 0x80) ++p;
    if (p == end) return true;
    size_t length = SequenceLength(p, end);
    if (length == 0) return false;
    p += length;
  }
}

uint32_t TakeCodePoint(std::string_view* text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text->data());
  size_t length = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
  uint32_t value = length == 1 ? p[0] : p[0] & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) value = value << 6 | (p[i] & 0x3f);
  text->remove_prefix(length);
  return value;
}

}  // namespace millrace
