#include "pubsub/catalog/catalog_rows.h"

#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr std::string_view kTopicKeys = "catalog/t/";
constexpr std::string_view kSubscriptionKeys = "catalog/s/";

std::string UidKey(std::string_view prefix, uint64_t uid) {
  std::string key(prefix);
  for (int i = 7; i >= 0; --i) key.push_back(static_cast<char>(uid >> (8 * i)));
  return key;
}

bool ParseUidKey(std::string_view prefix, std::string_view key, uint64_t* uid) {
  if (key.size() != prefix.size() + 8 || key.substr(0, prefix.size()) != prefix) return false;
  *uid = 0;
  for (char c : key.substr(prefix.size())) *uid = *uid << 8 | static_cast<uint8_t>(c);
  return true;
}

Status Unreadable() {
  return DataLoss("A row of the catalogue of topics and subscriptions cannot be read.");
}

}  // namespace

std::string TopicKey(TopicUid uid) { return UidKey(kTopicKeys, uid.value); }
std::string SubscriptionKey(SubscriptionUid uid) { return UidKey(kSubscriptionKeys, uid.value); }
bool ParseTopicKey(std::string_view key, TopicUid* uid) {
  return ParseUidKey(kTopicKeys, key, &uid->value);
}
bool ParseSubscriptionKey(std::string_view key, SubscriptionUid* uid) {
  return ParseUidKey(kSubscriptionKeys, key, &uid->value);
}

std::string SerializeRow(const TopicRow& row) {
  std::string out;
  storage::PutVarint(out, row.uid.value);
  storage::PutVarint(out, row.deleted);
  storage::PutString(out, row.settings.SerializeAsString());
  return out;
}

std::string SerializeRow(const SubscriptionRow& row) {
  std::string out;
  storage::PutVarint(out, row.uid.value);
  storage::PutVarint(out, row.topic.value);
  storage::PutVarint(out, row.start_offset);
  storage::PutString(out, row.settings.SerializeAsString());
  return out;
}

StatusOr<TopicRow> ParseTopicRow(std::string_view bytes) {
  storage::ByteReader reader(bytes);
  TopicRow row;
  row.uid.value = reader.Varint();
  row.deleted = reader.Varint() != 0;
  std::string_view settings = reader.String();
  if (!reader.ok() ||
      !row.settings.ParseFromArray(settings.data(), static_cast<int>(settings.size()))) {
    return Unreadable();
  }
  return row;
}

StatusOr<SubscriptionRow> ParseSubscriptionRow(std::string_view bytes) {
  storage::ByteReader reader(bytes);
  SubscriptionRow row;
  row.uid.value = reader.Varint();
  row.topic.value = reader.Varint();
  row.start_offset = reader.Varint();
  std::string_view settings = reader.String();
  if (!reader.ok() ||
      !row.settings.ParseFromArray(settings.data(), static_cast<int>(settings.size()))) {
    return Unreadable();
  }
  return row;
}

std::string PrefixEnd(std::string prefix) {
  while (static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

}  // namespace millrace::pubsub
