// Hand-written protobuf wire reading and writing for the few hot messages, so that the generator's
// own cost stays small next to that of the server under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace millrace::load::wire {

inline void PutVarint(std::string& out, uint64_t v) {
  while (v >= 0x80) {
    out.push_back(static_cast<char>(v | 0x80));
    v >>= 7;
  }
  out.push_back(static_cast<char>(v));
}
inline void PutBytes(std::string& out, int field, std::string_view v) {
  PutVarint(out, static_cast<uint64_t>(field) << 3 | 2);
  PutVarint(out, v.size());
  out.append(v);
}
inline void PutInt(std::string& out, int field, uint64_t v) {
  PutVarint(out, static_cast<uint64_t>(field) << 3);
  PutVarint(out, v);
}

// Reads the fields of one message in turn. ok() is false after malformed input.
class Reader {
 public:
  explicit Reader(std::string_view s) : p_(s.data()), end_(s.data() + s.size()) {}
  bool ok() const { return ok_; }
  // False at the end of the message or on bad input.
  bool Next() {
    if (p_ >= end_) return false;
    uint64_t key = Varint();
    if (!ok_) return false;
    field_ = static_cast<int>(key >> 3);
    type_ = static_cast<int>(key & 7);
    switch (type_) {
      case 0:
        value_ = Varint();
        break;
      case 1:
        Skip(8);
        break;
      case 2: {
        uint64_t n = Varint();
        if (!ok_ || n > static_cast<uint64_t>(end_ - p_)) {
          ok_ = false;
          return false;
        }
        bytes_ = std::string_view(p_, n);
        p_ += n;
        break;
      }
      case 5:
        Skip(4);
        break;
      default:
        ok_ = false;
    }
    return ok_;
  }
  int field() const { return field_; }
  int type() const { return type_; }
  uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }

 private:
  uint64_t Varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && p_ < end_; shift += 7) {
      uint8_t b = static_cast<uint8_t>(*p_++);
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (!(b & 0x80)) return v;
    }
    ok_ = false;
    return 0;
  }
  void Skip(ptrdiff_t n) {
    if (end_ - p_ < n)
      ok_ = false;
    else
      p_ += n;
  }
  const char* p_;
  const char* end_;
  bool ok_ = true;
  int field_ = 0, type_ = 0;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

}  // namespace millrace::load::wire

namespace millrace::load {

// What stands at the start of each message's data.
struct PayloadHeader {
  uint32_t run;
  uint32_t lane;
  uint64_t seq;
  uint64_t ts_ns;
};
static_assert(sizeof(PayloadHeader) == 24);

}  // namespace millrace::load
