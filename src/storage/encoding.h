// Byte codec of everything storage writes: fixed-width little-endian numbers, varints, and
// varint-prefixed strings.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace millrace::storage {

inline void PutFixed32(std::string& out, uint32_t value) {
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  out.append(bytes, 4);
}

inline void PutFixed64(std::string& out, uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, 8);
  out.append(bytes, 8);
}

inline void PutVarint(std::string& out, uint64_t value) {
  char bytes[10];
  size_t size = 0;
  while (value >= 0x80) {
    bytes[size++] = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  bytes[size++] = static_cast<char>(value);
  out.append(bytes, size);
}

// Small numbers of either sign stay short.
inline uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

inline void PutString(std::string& out, std::string_view value) {
  PutVarint(out, value.size());
  out.append(value);
}

inline uint32_t ReadFixed32(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, 4);
  return value;
}

inline uint64_t ReadFixed64(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, 8);
  return value;
}

// Takes values off the front of a view. After the first malformed or missing value ok() is false
// and all further values are zero or empty, so a caller may read a whole structure and check once.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Fail();
      uint8_t byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) return Fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }
  uint8_t Byte() { return Bytes(1).empty() ? 0 : static_cast<uint8_t>(last_.front()); }
  uint32_t Fixed32() { return Bytes(4).empty() ? 0 : ReadFixed32(last_.data()); }
  uint64_t Fixed64() { return Bytes(8).empty() ? 0 : ReadFixed64(last_.data()); }
  std::string_view String() { return Bytes(Varint()); }
  std::string_view Bytes(uint64_t size) {
    if (!ok_ || size > rest_.size()) {
      Fail();
      return last_ = {};
    }
    last_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return last_;
  }

 private:
  uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }

  std::string_view rest_;
  std::string_view last_;
  bool ok_ = true;
};

}  // namespace millrace::storage
