#include "pubsub/topic/entry_body.h"

#include <cstring>

#include "base/log.h"

namespace millrace::pubsub {
namespace {

// Always five bytes: enough for seconds until the year 3058 and for nanoseconds.
void WritePaddedVarint(char* out, uint64_t value) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<char>((value & 0x7f) | 0x80);
    value >>= 7;
  }
  out[4] = static_cast<char>(value & 0x7f);
}

// The digits stay in registers: the last one counts up, a carry writes all sixteen anew.
class Stamp {
 public:
  Stamp(uint64_t id, WallTime time) : id_(id) {
    SetDigits();
    int64_t seconds = time.micros / 1'000'000;
    int64_t nanos = time.micros % 1'000'000 * 1000;
    tail_[0] = 0x22;
    tail_[1] = 0x0c;
    tail_[2] = 0x08;
    WritePaddedVarint(tail_ + 3, seconds);
    tail_[8] = 0x10;
    WritePaddedVarint(tail_ + 9, nanos);
  }
  void Write(char* out) const {
    out[0] = 0x1a;
    out[1] = 0x10;
    std::memcpy(out + 2, &high_, 8);
    std::memcpy(out + 10, &low_, 8);
    std::memcpy(out + 18, tail_, sizeof(tail_));
  }
  void NextId() {
    ++id_;
    if (low_ >> 56 == '9') return SetDigits();
    low_ += uint64_t{1} << 56;
  }

 private:
  void SetDigits() {
    char digits[16];
    uint64_t rest = id_;
    for (int i = 15; i >= 0; --i) {
      digits[i] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    }
    std::memcpy(&high_, digits, 8);
    std::memcpy(&low_, digits + 8, 8);
  }

  uint64_t id_;
  uint64_t high_ = 0, low_ = 0;
  char tail_[kStampBytes - 18];
};

}  // namespace

void StampBody(char* body, size_t size, uint64_t first_id, WallTime publish_time) {
  MR_CHECK(first_id >= kMessageIdMin && first_id < kMessageIdEnd && publish_time.micros >= 0);
  Stamp stamp(first_id, publish_time);
  EntryBodyReader reader(std::string_view(body, size));
  std::string_view wire;
  while (reader.Next(&wire)) {
    MR_CHECK(wire.size() >= kStampBytes);
    stamp.Write(body + (wire.data() - body));
    stamp.NextId();
  }
  MR_CHECK(reader.ok());
}

}  // namespace millrace::pubsub
