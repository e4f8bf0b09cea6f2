// SipHash-1-3 with a 128-bit key: a short message authentication code for tokens that we hand out
// and take back.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace millrace::pubsub {

struct SipKey {
  uint64_t k0 = 0, k1 = 0;
  // The first 16 bytes of `bytes`; missing ones count as zero.
  static SipKey From(std::string_view bytes) {
    char padded[16] = {};
    std::memcpy(padded, bytes.data(), bytes.size() < 16 ? bytes.size() : 16);
    SipKey key;
    std::memcpy(&key.k0, padded, 8);
    std::memcpy(&key.k1, padded + 8, 8);
    return key;
  }
};

inline uint64_t SipHash13(const SipKey& key, const char* bytes, size_t size) {
  uint64_t v0 = key.k0 ^ 0x736f6d6570736575, v1 = key.k1 ^ 0x646f72616e646f6d;
  uint64_t v2 = key.k0 ^ 0x6c7967656e657261, v3 = key.k1 ^ 0x7465646279746573;
  auto rotate = [](uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
  auto round = [&] {
    v0 += v1, v1 = rotate(v1, 13) ^ v0, v0 = rotate(v0, 32);
    v2 += v3, v3 = rotate(v3, 16) ^ v2;
    v0 += v3, v3 = rotate(v3, 21) ^ v0;
    v2 += v1, v1 = rotate(v1, 17) ^ v2, v2 = rotate(v2, 32);
  };
  size_t whole = size & ~size_t{7};
  for (size_t i = 0; i < whole; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    v3 ^= word;
    round();
    v0 ^= word;
  }
  uint64_t last = static_cast<uint64_t>(size) << 56;
  std::memcpy(&last, bytes + whole, size - whole);
  last |= static_cast<uint64_t>(size) << 56;
  v3 ^= last;
  round();
  v0 ^= last;
  v2 ^= 0xff;
  round(), round(), round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace millrace::pubsub
