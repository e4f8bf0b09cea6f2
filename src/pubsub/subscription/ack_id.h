// Ack ids on their way in and out: the fast forms behind FormatAckId and ParseAckId
// (subscription_shard.h), and lists of ids as ranges. Pure functions; may be called on any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pubsub/subscription/sip_hash.h"
#include "pubsub/subscription/subscription_shard.h"

namespace millrace::pubsub {

inline constexpr size_t kAckIdSize = 48;  // characters

// Neighbouring offsets of one delivered run, as acked or extended together.
struct AckRange {
  uint64_t first = 0;
  uint32_t count = 0;
  uint64_t epoch = 0;
  friend bool operator==(const AckRange&, const AckRange&) = default;
};

void FormatAckId(const AckId& id, const SipKey& key, std::string* text);
bool ParseAckId(std::string_view text, const SipKey& key, AckId* id);

// Ids of `subscription` and `partition` in their given order, neighbours joined; others are left
// out: they name nothing here.
std::vector<AckRange> ParseAckIds(const std::vector<std::string>& ack_ids, const SipKey& key,
                                  SubscriptionUid subscription, uint32_t partition);

}  // namespace millrace::pubsub
