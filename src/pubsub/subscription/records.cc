#include "pubsub/subscription/records.h"

#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

using storage::ByteReader;
using storage::PutVarint;

constexpr uint8_t kRowVersion = 1;

void PutBigEndian(std::string* out, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

}  // namespace

std::string EncodeAcksRecord(const std::vector<AckedRun>& runs) {
  std::string payload;
  payload.reserve(8 + runs.size() * 6);
  payload.push_back(static_cast<char>(SubscriptionRecordType::kAcks));
  PutVarint(payload, runs.size());
  uint64_t at = 0;
  for (const AckedRun& run : runs) {
    PutVarint(payload, storage::ZigZag(static_cast<int64_t>(run.first - at)));
    PutVarint(payload, run.count);
    PutVarint(payload, run.bytes == AckedRun::kUnknownBytes ? 0 : run.bytes + 1);
    at = run.first + run.count;
  }
  return payload;
}

StatusOr<std::vector<AckedRun>> DecodeAcksRecord(std::string_view payload) {
  ByteReader reader(payload);
  if (reader.Byte() != static_cast<uint8_t>(SubscriptionRecordType::kAcks)) {
    return DataLoss("subscription record: unknown type");
  }
  uint64_t count = reader.Varint();
  if (count > payload.size()) return DataLoss("subscription record: impossible count");
  std::vector<AckedRun> runs;
  runs.reserve(count);
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    AckedRun& run = runs.emplace_back();
    run.first = at + static_cast<uint64_t>(storage::UnZigZag(reader.Varint()));
    run.count = reader.Varint();
    uint64_t bytes = reader.Varint();
    run.bytes = bytes == 0 ? AckedRun::kUnknownBytes : bytes - 1;
    at = run.first + run.count;
    if (at < run.first) return DataLoss("subscription record: impossible range");
  }
  if (!reader.ok() || !reader.empty()) return DataLoss("subscription record: malformed");
  return runs;
}

std::string EncodeStateRow(const StateRow& row) {
  std::string value;
  value.push_back(kRowVersion);
  PutVarint(value, row.seq);
  PutVarint(value, row.cursor);
  PutVarint(value, row.counted_end);
  return value;
}

StatusOr<StateRow> DecodeStateRow(std::string_view value) {
  ByteReader reader(value);
  uint8_t version = reader.Byte();
  StateRow row;
  row.seq = reader.Varint();
  row.cursor = reader.Varint();
  row.counted_end = reader.Varint();
  if (!reader.ok() || version != kRowVersion) return DataLoss("subscription state row: malformed");
  return row;
}

std::string RowPrefixOf(SubscriptionUid uid) {
  std::string key = "subscription/";
  PutBigEndian(&key, uid.value);
  return key;
}

std::string StateRowKey(SubscriptionUid uid) { return RowPrefixOf(uid) + "a"; }

std::string BlockRowKey(SubscriptionUid uid, uint64_t block) {
  std::string key = RowPrefixOf(uid) + "b";
  PutBigEndian(&key, block);
  return key;
}

bool ParseBlockRowKey(SubscriptionUid uid, std::string_view key, uint64_t* block) {
  std::string prefix = RowPrefixOf(uid) + "b";
  if (key.size() != prefix.size() + 8 || !key.starts_with(prefix)) return false;
  *block = 0;
  for (char c : key.substr(prefix.size())) *block = *block << 8 | static_cast<uint8_t>(c);
  return true;
}

}  // namespace millrace::pubsub
