// Durable forms of a subscription: the records it appends to the commit log, and the rows of its
// checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pubsub/types.h"

namespace millrace::pubsub {

// Neighbouring offsets that were acked together, with the size of their messages where it was
// known.
struct AckedRun {
  static constexpr uint64_t kUnknownBytes = UINT64_MAX;
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t bytes = kUnknownBytes;
  friend bool operator==(const AckedRun&, const AckedRun&) = default;
};

// Record types are stored on disk: never renumber. Seek, settings and others get numbers of their
// own.
enum class SubscriptionRecordType : uint8_t { kAcks = 1 };

std::string EncodeAcksRecord(const std::vector<AckedRun>& runs);
// DataLoss: not a record of this kind, or malformed.
StatusOr<std::vector<AckedRun>> DecodeAcksRecord(std::string_view payload);

// One row says how far the shard is; one row for each block above the cursor that is not uniform.
struct StateRow {
  uint64_t seq = 0;          // last record the rows hold
  uint64_t cursor = 0;       // first unacked offset
  uint64_t counted_end = 0;  // summaries hold the messages below
};
std::string EncodeStateRow(const StateRow& row);
StatusOr<StateRow> DecodeStateRow(std::string_view value);

// Keys within the rows of one subscription: its prefix, then these.
std::string RowPrefixOf(SubscriptionUid uid);
std::string StateRowKey(SubscriptionUid uid);
std::string BlockRowKey(SubscriptionUid uid, uint64_t block);  // in the order of blocks
// False: not a key of such a row.
bool ParseBlockRowKey(SubscriptionUid uid, std::string_view key, uint64_t* block);

}  // namespace millrace::pubsub
