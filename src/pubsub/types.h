// Words that the broker's parts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/strong_id.h"

namespace millrace::pubsub {

using TopicUid = StrongId<struct TopicUidTag>;                // one incarnation of a topic
using SubscriptionUid = StrongId<struct SubscriptionUidTag>;  // one incarnation of a subscription

// A message as stored: `wire` is the serialised PubsubMessage, message id and publish time in it.
struct StoredMessage {
  uint64_t offset = 0;
  WallTime publish_time;
  SharedBytes wire;
};

// One outstanding delivery, on its way to a subscriber.
struct Delivery {
  SharedBytes message;  // the serialised PubsubMessage
  std::string ack_id;
  int32_t delivery_attempt = 0;  // 0 without a dead-letter policy
  uint64_t offset = 0;
  WallTime publish_time;
};

// What became of ack ids with exactly-once delivery; without it every well-formed id counts as
// done.
struct AckOutcome {
  std::vector<std::string> done, invalid, unordered, failed_for_now;
};

struct SubscriptionProperties {
  bool exactly_once_delivery = false;
  bool message_ordering = false;
};

struct PublishResult {
  uint64_t first_message_id = 0;  // ids of one call are consecutive
  uint32_t count = 0;
};

// What the source connector needs to know of a subscription (DESIGN 4, 6).
struct BacklogInfo {
  uint64_t messages = 0;  // unacked, leased ones included
  uint64_t bytes = 0;
  std::optional<WallTime> oldest_unacked_publish;
  // Wall time that no later publish will be stamped before: now, or the stamp of the oldest publish
  // not committed yet.
  WallTime now;
  // For a registered attribute: exact minimum event time (ms) of the unacked messages, and of all
  // messages published within the band, acked or not. A missing or bad attribute counts as publish
  // time. Empty: no such message.
  bool event_times_known = false;  // false until the backlog has been scanned after registering
  std::optional<int64_t> min_event_ms_unacked;
  std::optional<int64_t> min_event_ms_in_band;
};

}  // namespace millrace::pubsub
