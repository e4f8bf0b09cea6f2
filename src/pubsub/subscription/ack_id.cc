// Form of an ack id: base64url of 36 bytes, little-endian: subscription uid (8), offset (8), epoch
// (8), partition (4), then SipHash-1-3 of these 28 bytes (8).
#include "pubsub/subscription/ack_id.h"

#include <array>
#include <cstring>

namespace millrace::pubsub {
namespace {

constexpr size_t kSignedBytes = 28;
constexpr size_t kBytes = kSignedBytes + 8;
static_assert(kBytes / 3 * 4 == kAckIdSize);

constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// 12 bits → two characters.
struct EncodeTable {
  std::array<char, 8192> pairs{};
  constexpr EncodeTable() {
    for (int i = 0; i < 4096; ++i) {
      pairs[2 * i] = kAlphabet[i >> 6];
      pairs[2 * i + 1] = kAlphabet[i & 63];
    }
  }
};
constexpr EncodeTable kEncode;

// Character → 6 bits, or 0x80 for one that is not of the alphabet.
struct DecodeTable {
  std::array<uint8_t, 256> bits{};
  constexpr DecodeTable() {
    for (auto& b : bits) b = 0x80;
    for (int i = 0; i < 64; ++i) bits[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
};
constexpr DecodeTable kDecode;

}  // namespace

void FormatAckId(const AckId& id, const SipKey& key, std::string* text) {
  unsigned char bytes[kBytes];
  std::memcpy(bytes, &id.subscription.value, 8);
  std::memcpy(bytes + 8, &id.offset, 8);
  std::memcpy(bytes + 16, &id.epoch, 8);
  std::memcpy(bytes + 24, &id.partition, 4);
  uint64_t mac = SipHash13(key, reinterpret_cast<const char*>(bytes), kSignedBytes);
  std::memcpy(bytes + kSignedBytes, &mac, 8);
  char out[kAckIdSize];
  char* to = out;
  for (size_t i = 0; i < kBytes; i += 3, to += 4) {
    uint32_t three = bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2];
    std::memcpy(to, &kEncode.pairs[2 * (three >> 12)], 2);
    std::memcpy(to + 2, &kEncode.pairs[2 * (three & 4095)], 2);
  }
  text->assign(out, kAckIdSize);
}

bool ParseAckId(std::string_view text, const SipKey& key, AckId* id) {
  if (text.size() != kAckIdSize) return false;
  unsigned char bytes[kBytes];
  uint32_t bad = 0;
  unsigned char* to = bytes;
  for (size_t i = 0; i < kAckIdSize; i += 4, to += 3) {
    uint32_t a = kDecode.bits[static_cast<uint8_t>(text[i])];
    uint32_t b = kDecode.bits[static_cast<uint8_t>(text[i + 1])];
    uint32_t c = kDecode.bits[static_cast<uint8_t>(text[i + 2])];
    uint32_t d = kDecode.bits[static_cast<uint8_t>(text[i + 3])];
    bad |= a | b | c | d;
    uint32_t three = a << 18 | b << 12 | c << 6 | d;
    to[0] = static_cast<unsigned char>(three >> 16);
    to[1] = static_cast<unsigned char>(three >> 8);
    to[2] = static_cast<unsigned char>(three);
  }
  if (bad & 0x80) return false;
  uint64_t mac;
  std::memcpy(&mac, bytes + kSignedBytes, 8);
  if (mac != SipHash13(key, reinterpret_cast<const char*>(bytes), kSignedBytes)) return false;
  std::memcpy(&id->subscription.value, bytes, 8);
  std::memcpy(&id->offset, bytes + 8, 8);
  std::memcpy(&id->epoch, bytes + 16, 8);
  std::memcpy(&id->partition, bytes + 24, 4);
  return true;
}

std::string FormatAckId(const AckId& id, std::string_view key) {
  std::string text;
  FormatAckId(id, SipKey::From(key), &text);
  return text;
}

bool ParseAckId(std::string_view text, std::string_view key, AckId* id) {
  return ParseAckId(text, SipKey::From(key), id);
}

std::vector<AckRange> ParseAckIds(const std::vector<std::string>& ack_ids, const SipKey& key,
                                  SubscriptionUid subscription, uint32_t partition) {
  std::vector<AckRange> ranges;
  AckId id;
  for (const std::string& text : ack_ids) {
    if (!ParseAckId(text, key, &id)) continue;
    if (id.subscription != subscription || id.partition != partition) continue;
    if (!ranges.empty()) {
      AckRange& last = ranges.back();
      if (last.epoch == id.epoch && last.first + last.count == id.offset &&
          last.count < UINT32_MAX) {
        ++last.count;
        continue;
      }
    }
    ranges.push_back({id.offset, 1, id.epoch});
  }
  return ranges;
}

}  // namespace millrace::pubsub
