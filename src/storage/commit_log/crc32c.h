// CRC-32C (Castagnoli), by the processor's instruction where it has one.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::storage {

// The checksum of what `crc` covers followed by `bytes`; start with 0.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

}  // namespace millrace::storage
