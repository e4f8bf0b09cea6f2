// Hashes that are the same on every machine and in every version: they decide which range a key
// belongs to and name ids on disk. Never change them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace millrace::engine {

namespace hash_detail {
inline uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
inline uint64_t Load(const char* p, size_t n) {
  uint64_t word = 0;
  std::memcpy(&word, p, n);
  return word;
}
}  // namespace hash_detail

// Two lanes with different odd constants; 16 bytes a round.
inline uint64_t StableHash(std::string_view bytes, uint64_t seed = 0) {
  constexpr uint64_t kA = 0x9fb21c651e98df25ULL, kB = 0xd6e8feb86659fd93ULL,
                     kC = 0xa0761d6478bd642fULL;
  uint64_t h = (seed ^ kA) + bytes.size() * kB;
  const char* p = bytes.data();
  size_t left = bytes.size();
  while (left > 16) {
    h = hash_detail::Fold(hash_detail::Load(p, 8) ^ kB ^ h, hash_detail::Load(p + 8, 8) ^ kC) + h;
    p += 16;
    left -= 16;
  }
  const uint64_t low = hash_detail::Load(p, left < 8 ? left : 8);
  const uint64_t high = left > 8 ? hash_detail::Load(p + 8, left - 8) : 0;
  h = hash_detail::Fold(low ^ kC ^ h, high ^ kA ^ (h >> 32));
  return hash_detail::Fold(h ^ kB, kA);
}

// Names an id among all that a job ever sees; 128 bits, so that two different ones do not meet.
struct IdHash {
  uint64_t high = 0, low = 0;
  friend auto operator<=>(const IdHash&, const IdHash&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const IdHash& id) {
    return H::combine(std::move(h), id.low);
  }
};
inline IdHash HashId(std::string_view id) {
  return {StableHash(id, 0x71d67fffeda60001ULL), StableHash(id, 0x3c79ac492ba7b653ULL)};
}

}  // namespace millrace::engine
