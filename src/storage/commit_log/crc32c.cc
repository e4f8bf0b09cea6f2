#include "storage/commit_log/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace millrace::storage {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

[[maybe_unused]] uint32_t ByTable(uint32_t crc, const char* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    crc = kTable[(crc ^ static_cast<uint8_t>(data[i])) & 0xff] ^ (crc >> 8);
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const char* data,
                                                         size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data));
  return crc;
}

uint32_t Update(uint32_t crc, const char* data, size_t size) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  return has_instruction ? ByInstruction(crc, data, size) : ByTable(crc, data, size);
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
uint32_t Update(uint32_t crc, const char* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = __crc32cd(crc, word);
  }
  for (; size > 0; ++data, --size) crc = __crc32cb(crc, static_cast<uint8_t>(*data));
  return crc;
}
#else
uint32_t Update(uint32_t crc, const char* data, size_t size) { return ByTable(crc, data, size); }
#endif

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes) {
  return ~Update(~crc, bytes.data(), bytes.size());
}

}  // namespace millrace::storage
