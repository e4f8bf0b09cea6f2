#include "pubsub/topic/wire_cursor.h"

namespace millrace::pubsub {
namespace {

constexpr uint32_t kEndGroup = 4;

}  // namespace

// Up to five bytes; what does not fit into 32 bits falls off.
bool WireCursor::LongTag(uint32_t* tag) {
  uint32_t value = *tag & 0x7f;
  for (int shift = 7; shift <= 28; shift += 7) {
    if (p_ == end_) return false;
    uint32_t byte = *p_++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *tag = value;
      return true;
    }
  }
  return false;
}

// Up to five bytes and below 2 GB.
bool WireCursor::LongSize(uint32_t* size) {
  uint32_t value = *size & 0x7f;
  for (int shift = 7; shift <= 28; shift += 7) {
    if (p_ == end_) return false;
    uint32_t byte = *p_++;
    if (shift == 28 && byte >= 8) return false;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *size = value;
      return true;
    }
  }
  return false;
}

bool WireCursor::SkipVarint() {
  for (int i = 0; i < 10; ++i) {
    if (p_ == end_) return false;
    if (*p_++ < 0x80) return true;
  }
  return false;
}

bool WireCursor::Skip(uint32_t tag, int depth) {
  if (tag >> 3 == 0) return false;
  switch (tag & 7) {
    case 0:
      return SkipVarint();
    case 1:
      return Advance(8);
    case 2: {
      std::string_view ignored;
      return Bytes(&ignored);
    }
    case 3: {
      if (depth >= kDepthMax) return false;
      uint32_t inner;
      while (Tag(&inner)) {
        if ((inner & 7) == kEndGroup) return inner >> 3 == tag >> 3;
        if (!Skip(inner, depth + 1)) return false;
      }
      return false;
    }
    case 5:
      return Advance(4);
    default:
      return false;
  }
}

bool WireCursor::IsMessage(std::string_view bytes, int depth) {
  if (depth > kDepthMax) return false;
  WireCursor cursor(bytes);
  uint32_t tag;
  while (!cursor.AtEnd()) {
    if (!cursor.Tag(&tag) || !cursor.Skip(tag, depth)) return false;
  }
  return true;
}

}  // namespace millrace::pubsub
