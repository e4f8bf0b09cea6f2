// Takes protobuf wire form apart, accepting exactly what the C++ runtime accepts.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::pubsub {

inline constexpr uint32_t WireTag(uint32_t field, uint32_t wire_type) {
  return field << 3 | wire_type;
}

// A position in one message. Every method returns false on malformed input; the cursor is then of
// no further use.
class WireCursor {
 public:
  // Messages and groups may nest this deep below the outermost message.
  static constexpr int kDepthMax = 100;

  explicit WireCursor(std::string_view bytes)
      : p_(reinterpret_cast<const uint8_t*>(bytes.data())), end_(p_ + bytes.size()) {}

  bool AtEnd() const { return p_ == end_; }

  bool Tag(uint32_t* tag) {
    if (p_ == end_) return false;
    uint32_t value = *p_++;
    if (value >= 0x80 && !LongTag(&value)) return false;
    *tag = value;
    return true;
  }

  // A length-delimited value.
  bool Bytes(std::string_view* value) {
    if (p_ == end_) return false;
    uint32_t size = *p_++;
    if (size >= 0x80 && !LongSize(&size)) return false;
    if (size > static_cast<size_t>(end_ - p_)) return false;
    *value = std::string_view(reinterpret_cast<const char*>(p_), size);
    p_ += size;
    return true;
  }

  // Passes over the value of a field whose meaning does not matter. `depth` counts what encloses
  // it.
  bool Skip(uint32_t tag, int depth);

  // Whether `bytes` is well-formed as a message of unknown fields.
  static bool IsMessage(std::string_view bytes, int depth);

 private:
  bool LongTag(uint32_t* tag);
  bool LongSize(uint32_t* size);
  bool SkipVarint();
  bool Advance(size_t count) {
    if (count > static_cast<size_t>(end_ - p_)) return false;
    p_ += count;
    return true;
  }

  const uint8_t* p_;
  const uint8_t* end_;
};

}  // namespace millrace::pubsub
