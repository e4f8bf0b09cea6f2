// Coders as trees of kinds: all that the runner must know to cut encoded bytes. Made by the planner
// from the pipeline's coder protos (URN, payload, components); immutable; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace::coders {

struct Coder;
using CoderPtr = std::shared_ptr<const Coder>;

// A field of a row: what beam:coder:row:v1 needs to know of a schema's FieldType. Logical types are
// given by their representation, or by `kLogicalCoder` where their encoding is not that of it.
struct RowField {
  enum class Kind : uint8_t {
    kByte,    // 1 byte
    kInt16,   // 2 bytes, big endian
    kInt32,   // varint
    kInt64,   // varint
    kFloat,   // 4 bytes, big endian
    kDouble,  // 8 bytes, big endian
    kString,
    kBoolean,
    kBytes,
    kArray,         // of fields[0]
    kIterable,      // of fields[0]
    kMap,           // of fields[0] to fields[1]
    kRow,           // fields in encoding order
    kLogicalCoder,  // `coder`
  };
  Kind kind = Kind::kBytes;
  bool nullable = false;
  std::vector<RowField> fields;
  CoderPtr coder;
};

// The fields of a row in encoding order (the planner has applied encoding positions).
struct RowSchema {
  std::vector<RowField> fields;
};

struct Coder {
  enum class Kind : uint8_t {
    kBytes,
    kString,
    kBool,
    kVarint,
    kDouble,
    kKv,
    kNullable,
    kLengthPrefix,
    kIterable,
    kStateBackedIterable,
    kGlobalWindow,
    kIntervalWindow,
    kCustomWindow,
    kWindowedValue,
    kParamWindowedValue,
    kTimer,
    kShardedKey,
    kRow,
    kInstant,  // eight sortable bytes; not a standard URN, used inside rows
    kOpaque,   // anything else: its bytes can be cut only inside a length prefix
  };
  static constexpr uint32_t kVariable = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::kOpaque;
  // Each encoded value has exactly / at least so many bytes; a minimum of 0 means exactly 0.
  uint32_t fixed_size = kVariable;
  uint32_t min_size = 1;
  uint32_t depth = 1;
  std::vector<CoderPtr> components;
  std::string urn;
  std::string payload;
  std::shared_ptr<const RowSchema> row;  // kRow

  const Coder& component(size_t i) const { return *components[i]; }
};

inline constexpr std::string_view kBytesUrn = "beam:coder:bytes:v1";
inline constexpr std::string_view kStringUrn = "beam:coder:string_utf8:v1";
inline constexpr std::string_view kBoolUrn = "beam:coder:bool:v1";
inline constexpr std::string_view kVarintUrn = "beam:coder:varint:v1";
inline constexpr std::string_view kDoubleUrn = "beam:coder:double:v1";
inline constexpr std::string_view kKvUrn = "beam:coder:kv:v1";
inline constexpr std::string_view kNullableUrn = "beam:coder:nullable:v1";
inline constexpr std::string_view kLengthPrefixUrn = "beam:coder:length_prefix:v1";
inline constexpr std::string_view kIterableUrn = "beam:coder:iterable:v1";
inline constexpr std::string_view kStateBackedIterableUrn = "beam:coder:state_backed_iterable:v1";
inline constexpr std::string_view kGlobalWindowUrn = "beam:coder:global_window:v1";
inline constexpr std::string_view kIntervalWindowUrn = "beam:coder:interval_window:v1";
inline constexpr std::string_view kCustomWindowUrn = "beam:coder:custom_window:v1";
inline constexpr std::string_view kWindowedValueUrn = "beam:coder:windowed_value:v1";
inline constexpr std::string_view kParamWindowedValueUrn = "beam:coder:param_windowed_value:v1";
inline constexpr std::string_view kTimerUrn = "beam:coder:timer:v1";
inline constexpr std::string_view kShardedKeyUrn = "beam:coder:sharded_key:v1";
inline constexpr std::string_view kRowUrn = "beam:coder:row:v1";
inline constexpr std::string_view kSchemaUrn = "beam:coder:schema:v1";

// A coder by URN. Unknown URNs give kOpaque, row and schema too (their payload is a proto: use
// MakeRowCoder). Fails if a known URN has the wrong number of components, a parameter coder's
// payload is malformed, or the tree is deeper than 64.
StatusOr<CoderPtr> MakeCoder(std::string_view urn, std::string payload,
                             std::vector<CoderPtr> components);

// A row coder. Fails on containers without element fields and on nesting deeper than 64.
StatusOr<CoderPtr> MakeRowCoder(std::string_view urn, std::string payload, RowSchema schema);

// For coders the runner makes itself; the arguments are right by construction.
CoderPtr LeafCoder(Coder::Kind kind);
CoderPtr LengthPrefixed(CoderPtr component);
CoderPtr KvCoder(CoderPtr key, CoderPtr value);
CoderPtr IterableCoder(CoderPtr element);
CoderPtr WindowedValueCoder(CoderPtr element, CoderPtr window);

// The kind of a standard URN; kOpaque for all others.
Coder::Kind KindOf(std::string_view urn);

// Values of this coder can be cut without the SDK: no kOpaque outside a length prefix.
bool IsKnown(const Coder& coder);

// Same kinds in the same shape with the same URNs, payloads and row schemas.
bool SameCoder(const Coder& a, const Coder& b);

}  // namespace millrace::coders
