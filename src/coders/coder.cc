#include "coders/coder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "windowing/wire.h"

namespace millrace::coders {
namespace {

using Kind = Coder::Kind;

constexpr uint32_t kDepthMax = 64;

struct KindRow {
  std::string_view urn;
  Kind kind;
  int components;
  uint32_t fixed_size;  // by itself; kVariable if it depends on components or content
  uint32_t min_size;
};

constexpr uint32_t kVariable = Coder::kVariable;
constexpr KindRow kKinds[] = {
    {kBytesUrn, Kind::kBytes, 0, kVariable, 1},
    {kStringUrn, Kind::kString, 0, kVariable, 1},
    {kBoolUrn, Kind::kBool, 0, 1, 1},
    {kVarintUrn, Kind::kVarint, 0, kVariable, 1},
    {kDoubleUrn, Kind::kDouble, 0, 8, 8},
    {kKvUrn, Kind::kKv, 2, kVariable, 0},
    {kNullableUrn, Kind::kNullable, 1, kVariable, 1},
    {kLengthPrefixUrn, Kind::kLengthPrefix, 1, kVariable, 1},
    {kIterableUrn, Kind::kIterable, 1, kVariable, 4},
    {kStateBackedIterableUrn, Kind::kStateBackedIterable, 1, kVariable, 4},
    {kGlobalWindowUrn, Kind::kGlobalWindow, 0, 0, 0},
    {kIntervalWindowUrn, Kind::kIntervalWindow, 0, kVariable, 9},
    {kCustomWindowUrn, Kind::kCustomWindow, 1, kVariable, 8},
    {kWindowedValueUrn, Kind::kWindowedValue, 2, kVariable, 13},
    {kParamWindowedValueUrn, Kind::kParamWindowedValue, 2, kVariable, 0},
    {kTimerUrn, Kind::kTimer, 2, kVariable, 6},
    {kShardedKeyUrn, Kind::kShardedKey, 1, kVariable, 1},
};
constexpr KindRow kInstantRow = {{}, Kind::kInstant, 0, 8, 8};
constexpr KindRow kOpaqueRow = {{}, Kind::kOpaque, -1, kVariable, 1};

const KindRow& RowOf(std::string_view urn) {
  for (const KindRow& row : kKinds) {
    if (row.urn == urn) return row;
  }
  return kOpaqueRow;
}

const KindRow& RowOf(Kind kind) {
  if (kind == Kind::kInstant) return kInstantRow;
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row;
  }
  return kOpaqueRow;
}

// Sizes that follow from components: so many of them stand one after another.
void AddComponentSizes(Coder& coder, size_t counted) {
  uint64_t fixed = coder.kind == Kind::kCustomWindow ? 8 : 0;
  uint64_t min = fixed;
  bool is_fixed = true;
  for (size_t i = 0; i < counted; ++i) {
    const Coder& component = *coder.components[i];
    is_fixed = is_fixed && component.fixed_size != kVariable;
    fixed += component.fixed_size;
    min += component.min_size;
  }
  constexpr uint64_t kSizeMax = 1 << 20;
  if (is_fixed && fixed < kSizeMax) coder.fixed_size = static_cast<uint32_t>(fixed);
  coder.min_size = static_cast<uint32_t>(std::min(min, kSizeMax));
}

CoderPtr Build(const KindRow& row, std::string_view urn, std::string payload,
               std::vector<CoderPtr> components) {
  auto coder = std::make_shared<Coder>();
  coder->kind = row.kind;
  coder->fixed_size = row.fixed_size;
  coder->min_size = row.min_size;
  coder->components = std::move(components);
  coder->urn = urn;
  coder->payload = std::move(payload);
  for (const CoderPtr& component : coder->components) {
    coder->depth = std::max(coder->depth, component->depth + 1);
  }
  if (row.kind == Kind::kKv) AddComponentSizes(*coder, 2);
  if (row.kind == Kind::kParamWindowedValue || row.kind == Kind::kCustomWindow) {
    AddComponentSizes(*coder, 1);
  }
  return coder;
}

bool IsUsableWindow(const Coder& coder) {
  return coder.kind == Kind::kGlobalWindow || coder.kind == Kind::kIntervalWindow ||
         coder.kind == Kind::kCustomWindow;
}

// The payload is a windowed value of an empty byte string. Windows of coders the runner does not
// know cannot be read; such a coder is not known anyway.
Status CheckParameter(const Coder& coder) {
  const Coder& window = coder.component(1);
  windowing::WindowKind kind = windowing::WindowKind::kCustom;
  if (window.kind == Kind::kGlobalWindow) kind = windowing::WindowKind::kGlobal;
  if (window.kind == Kind::kIntervalWindow) kind = windowing::WindowKind::kInterval;
  if (kind == windowing::WindowKind::kCustom) return OkStatus();
  std::string_view in = coder.payload;
  windowing::Header header;
  if (!windowing::ParseHeader(in, kind, &header)) {
    return InvalidArgument(fmt::format("payload of coder {} is not a windowed value", coder.urn));
  }
  return OkStatus();
}

size_t FieldsWanted(const RowField& field) {
  switch (field.kind) {
    case RowField::Kind::kArray:
    case RowField::Kind::kIterable:
      return 1;
    case RowField::Kind::kMap:
      return 2;
    default:
      return 0;
  }
}

Status CheckFields(std::span<const RowField> fields, uint32_t depth, uint32_t* deepest) {
  if (depth > kDepthMax) return InvalidArgument("row schema is nested deeper than 64");
  *deepest = std::max(*deepest, depth);
  for (const RowField& field : fields) {
    if (field.kind == RowField::Kind::kLogicalCoder) {
      if (field.coder == nullptr || depth + field.coder->depth > kDepthMax) {
        return InvalidArgument("row field has no coder, or one nested too deeply");
      }
      // Containers of it could claim any number of items without bytes.
      if (field.coder->min_size == 0) return InvalidArgument("row field's coder writes no bytes");
      *deepest = std::max(*deepest, depth + field.coder->depth);
    }
    if (field.kind != RowField::Kind::kRow && field.fields.size() != FieldsWanted(field)) {
      return InvalidArgument("row field has a wrong number of element types");
    }
    MR_RETURN_IF_ERROR(CheckFields(field.fields, depth + 1, deepest));
  }
  return OkStatus();
}

bool FieldsKnown(std::span<const RowField> fields) {
  return std::all_of(fields.begin(), fields.end(), [](const RowField& field) {
    return field.kind == RowField::Kind::kLogicalCoder ? IsKnown(*field.coder)
                                                       : FieldsKnown(field.fields);
  });
}

bool SameFields(std::span<const RowField> a, std::span<const RowField> b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const RowField& x, const RowField& y) {
        return x.kind == y.kind && x.nullable == y.nullable &&
               (x.kind == RowField::Kind::kLogicalCoder ? SameCoder(*x.coder, *y.coder)
                                                        : SameFields(x.fields, y.fields));
      });
}

}  // namespace

StatusOr<CoderPtr> MakeCoder(std::string_view urn, std::string payload,
                             std::vector<CoderPtr> components) {
  const KindRow& row = RowOf(urn);
  if (row.components >= 0 && components.size() != static_cast<size_t>(row.components)) {
    return InvalidArgument(fmt::format("coder {} has {} components, needs {}", urn,
                                       components.size(), row.components));
  }
  for (const CoderPtr& component : components) {
    if (component == nullptr || component->depth >= kDepthMax) {
      return InvalidArgument(fmt::format("coder {} is nested deeper than {}", urn, kDepthMax));
    }
  }
  CoderPtr coder = Build(row, urn, std::move(payload), std::move(components));
  if (coder->kind == Kind::kParamWindowedValue) MR_RETURN_IF_ERROR(CheckParameter(*coder));
  return coder;
}

StatusOr<CoderPtr> MakeRowCoder(std::string_view urn, std::string payload, RowSchema schema) {
  auto coder = std::make_shared<Coder>();
  MR_RETURN_IF_ERROR(CheckFields(schema.fields, 2, &coder->depth));
  coder->kind = Kind::kRow;
  coder->min_size = 2;  // field count, size of the null bits
  coder->urn = urn;
  coder->payload = std::move(payload);
  coder->row = std::make_shared<const RowSchema>(std::move(schema));
  return CoderPtr(std::move(coder));
}

CoderPtr LeafCoder(Coder::Kind kind) {
  const KindRow& row = RowOf(kind);
  return Build(row, row.urn, {}, {});
}

CoderPtr LengthPrefixed(CoderPtr component) {
  return Build(RowOf(Kind::kLengthPrefix), kLengthPrefixUrn, {}, {std::move(component)});
}

CoderPtr KvCoder(CoderPtr key, CoderPtr value) {
  return Build(RowOf(Kind::kKv), kKvUrn, {}, {std::move(key), std::move(value)});
}

CoderPtr IterableCoder(CoderPtr element) {
  return Build(RowOf(Kind::kIterable), kIterableUrn, {}, {std::move(element)});
}

CoderPtr WindowedValueCoder(CoderPtr element, CoderPtr window) {
  return Build(RowOf(Kind::kWindowedValue), kWindowedValueUrn, {},
               {std::move(element), std::move(window)});
}

Coder::Kind KindOf(std::string_view urn) {
  if (urn == kRowUrn || urn == kSchemaUrn) return Kind::kRow;
  return RowOf(urn).kind;
}

bool IsKnown(const Coder& coder) {
  switch (coder.kind) {
    case Kind::kOpaque:
      return false;
    case Kind::kLengthPrefix:
      return true;
    case Kind::kRow:
      return FieldsKnown(coder.row->fields);
    case Kind::kWindowedValue:
    case Kind::kParamWindowedValue:
    case Kind::kTimer:
      if (!IsUsableWindow(coder.component(1))) return false;
      break;
    default:
      break;
  }
  return std::all_of(coder.components.begin(), coder.components.end(),
                     [](const CoderPtr& component) { return IsKnown(*component); });
}

bool SameCoder(const Coder& a, const Coder& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.urn != b.urn || a.payload != b.payload ||
      (a.row == nullptr) != (b.row == nullptr)) {
    return false;
  }
  if (a.row != nullptr && !SameFields(a.row->fields, b.row->fields)) return false;
  return std::equal(a.components.begin(), a.components.end(), b.components.begin(),
                    b.components.end(),
                    [](const CoderPtr& x, const CoderPtr& y) { return SameCoder(*x, *y); });
}

}  // namespace millrace::coders
