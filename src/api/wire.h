// Protobuf wire format by hand, for the few messages of the hot path: read field by field without
// copying, written into memory whose size was computed before.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace millrace::api {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Walks the fields of one message. Views point into the bytes given.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  // False at the end of the message and on malformed input; ok() tells which.
  bool Next();
  bool ok() const { return ok_; }
  uint32_t field() const { return field_; }
  WireType type() const { return type_; }
  // Of a varint field.
  uint64_t value() const { return value_; }
  // Of a length-delimited field.
  std::string_view bytes() const { return bytes_; }
  // True if the current field is `field` and has that type.
  bool Is(uint32_t field, WireType type) const { return field_ == field && type_ == type; }

 private:
  bool Varint(uint64_t* value);
  bool Fail() {
    ok_ = false;
    return false;
  }

  const char* at_;
  const char* end_;
  bool ok_ = true;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

inline bool WireReader::Varint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 70 && at_ < end_; shift += 7) {
    uint8_t byte = static_cast<uint8_t>(*at_++);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return Fail();
}

// Walks a packed list of varints.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  bool Next() {
    if (at_ >= end_) return false;
    value_ = 0;
    for (int shift = 0; shift < 70 && at_ < end_; shift += 7) {
      uint8_t byte = static_cast<uint8_t>(*at_++);
      value_ |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    ok_ = false;
    at_ = end_;
    return false;
  }
  bool ok() const { return ok_; }
  uint64_t value() const { return value_; }

 private:
  const char* at_;
  const char* end_;
  bool ok_ = true;
  uint64_t value_ = 0;
};

inline bool WireReader::Next() {
  if (at_ >= end_ || !ok_) return false;
  uint64_t key;
  if (!Varint(&key)) return false;
  field_ = static_cast<uint32_t>(key >> 3);
  type_ = static_cast<WireType>(key & 7);
  if (field_ == 0 || key > UINT32_MAX) return Fail();
  switch (type_) {
    case WireType::kVarint:
      return Varint(&value_);
    case WireType::kFixed64:
    case WireType::kFixed32: {
      size_t size = type_ == WireType::kFixed64 ? 8 : 4;
      if (static_cast<size_t>(end_ - at_) < size) return Fail();
      bytes_ = {at_, size};
      at_ += size;
      return true;
    }
    case WireType::kBytes: {
      uint64_t size;
      if (!Varint(&size)) return false;
      if (size > static_cast<uint64_t>(end_ - at_)) return Fail();
      bytes_ = {at_, size};
      at_ += size;
      return true;
    }
  }
  return Fail();
}

inline size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// Of a length-delimited field with a tag below 16.
inline size_t BytesFieldSize(size_t size) { return 1 + VarintSize(size) + size; }

inline char* PutVarint(char* at, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<char>(value | 0x80);
  *at++ = static_cast<char>(value);
  return at;
}

// Tag (below 16) and length of a length-delimited field; its bytes follow.
inline char* PutBytesHead(char* at, uint32_t field, size_t size) {
  *at++ = static_cast<char>(field << 3 | static_cast<uint32_t>(WireType::kBytes));
  return PutVarint(at, size);
}

inline char* PutRaw(char* at, std::string_view bytes) {
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  return at + bytes.size();
}

inline char* PutBytes(char* at, uint32_t field, std::string_view bytes) {
  return PutRaw(PutBytesHead(at, field, bytes.size()), bytes);
}

inline void AppendBytes(std::string& out, uint32_t field, std::string_view bytes) {
  char head[12];
  out.append(head, static_cast<size_t>(PutBytesHead(head, field, bytes.size()) - head));
  out.append(bytes);
}

}  // namespace millrace::api
