// The catalogue's durable rows: what topics and subscriptions there are. Records of the catalogue
// are batches of these rows; a checkpoint writes the same rows into Table::kBroker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/types.h"
#include "storage/store.h"

namespace millrace::pubsub {

struct TopicRow {
  TopicUid uid;
  // Its subscriptions keep what is in it; nothing is published any more.
  bool deleted = false;
  google::pubsub::v1::Topic settings;  // normal (resource_settings.h)
};

struct SubscriptionRow {
  SubscriptionUid uid;
  TopicUid topic;             // stays when the topic is deleted
  uint64_t start_offset = 0;  // of the backlog at creation
  google::pubsub::v1::Subscription settings;
};

// All keys of the catalogue begin with it.
inline constexpr std::string_view kCatalogPrefix = "catalog/";
inline constexpr std::string_view kCatalogSeqKey = "catalog/n/seq";
inline constexpr std::string_view kCatalogNextUidKey = "catalog/n/uid";
inline constexpr std::string_view kCatalogBootKey = "catalog/n/boot";

std::string TopicKey(TopicUid uid);
std::string SubscriptionKey(SubscriptionUid uid);
// False: another kind of key.
bool ParseTopicKey(std::string_view key, TopicUid* uid);
bool ParseSubscriptionKey(std::string_view key, SubscriptionUid* uid);

std::string SerializeRow(const TopicRow& row);
std::string SerializeRow(const SubscriptionRow& row);
StatusOr<TopicRow> ParseTopicRow(std::string_view bytes);
StatusOr<SubscriptionRow> ParseSubscriptionRow(std::string_view bytes);

// The first key behind all that begin with `prefix`, which does not end with 0xff bytes only.
std::string PrefixEnd(std::string prefix);

}  // namespace millrace::pubsub
