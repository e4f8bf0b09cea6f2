#include "coders/walk.h"

namespace millrace::coders {
namespace {

using Kind = Coder::Kind;
using windowing::Header;
using windowing::ParseBigEndian32;
using windowing::ParseBytes;
using windowing::ParseVarint;
using windowing::Walker;

bool SkipFixed(size_t size, std::string_view& in) {
  if (in.size() < size) return false;
  in.remove_prefix(size);
  return true;
}

bool SkipBytes(std::string_view& in) {
  std::string_view ignored;
  return ParseBytes(in, &ignored);
}

bool SkipVarint(std::string_view& in) {
  uint64_t ignored = 0;
  return ParseVarint(in, &ignored);
}

// Skip without a call for the coders of most keys and values.
inline bool SkipOne(const Coder& coder, std::string_view& in) {
  switch (coder.kind) {
    case Kind::kBytes:
    case Kind::kString:
    case Kind::kLengthPrefix:
      return SkipBytes(in);
    case Kind::kVarint:
      return SkipVarint(in);
    default:
      return Skip(coder, in);
  }
}

// `count` values one after another. Checks the count against what the input can hold, so that a
// huge count of tiny or empty values costs nothing.
bool SkipMany(const Coder& element, uint64_t count, std::string_view& in) {
  if (element.min_size == 0) return true;
  if (count > in.size() / element.min_size) return false;
  if (element.fixed_size != Coder::kVariable) return SkipFixed(count * element.fixed_size, in);
  for (uint64_t i = 0; i < count; ++i) {
    if (!SkipOne(element, in)) return false;
  }
  return true;
}

bool SkipIterable(const Coder& element, bool state_backed, std::string_view& in) {
  uint32_t count = 0;
  if (!ParseBigEndian32(in, &count)) return false;
  if (count <= INT32_MAX) return SkipMany(element, count, in);
  if (count != UINT32_MAX) return false;
  while (true) {
    int64_t batch = 0;
    if (!ParseVarint(in, &batch)) return false;
    if (batch == 0) return true;
    if (batch < 0) return batch == -1 && state_backed && SkipBytes(in);
    if (!SkipMany(element, static_cast<uint64_t>(batch), in)) return false;
  }
}

bool SkipField(const RowField& field, std::string_view& in);

bool SkipElementField(const RowField& field, std::string_view& in) {
  if (field.nullable) {
    if (in.empty()) return false;
    const char present = in[0];
    in.remove_prefix(1);
    if (present == 0) return true;
    if (present != 1) return false;
  }
  return SkipField(field, in);
}

// A schema has at most so many fields that a bit scan is cheap; absent trailing fields of an older
// schema read as null.
bool SkipRow(const std::vector<RowField>& fields, std::string_view& in) {
  uint64_t count = 0;
  std::string_view nulls;
  if (!ParseVarint(in, &count) || count > fields.size() || !ParseBytes(in, &nulls)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const bool null = i / 8 < nulls.size() && ((nulls[i / 8] >> (i % 8)) & 1) != 0;
    if (null) {
      if (!fields[i].nullable) return false;
    } else if (!SkipField(fields[i], in)) {
      return false;
    }
  }
  return true;
}

// Items of an array or map: each takes a byte at least, save rows of a representation that could be
// empty, and those take two.
bool SkipItems(std::span<const RowField> item, std::string_view& in) {
  uint32_t count = 0;
  if (!ParseBigEndian32(in, &count)) return false;
  if (count == UINT32_MAX && item.size() == 1) {
    while (true) {
      uint64_t batch = 0;
      if (!ParseVarint(in, &batch)) return false;
      if (batch == 0) return true;
      if (batch > in.size()) return false;
      for (uint64_t i = 0; i < batch; ++i) {
        if (!SkipElementField(item[0], in)) return false;
      }
    }
  }
  if (count > in.size()) return false;
  for (uint32_t i = 0; i < count; ++i) {
    for (const RowField& part : item) {
      if (!SkipElementField(part, in)) return false;
    }
  }
  return true;
}

bool SkipField(const RowField& field, std::string_view& in) {
  switch (field.kind) {
    case RowField::Kind::kByte:
    case RowField::Kind::kBoolean:
      return SkipFixed(1, in);
    case RowField::Kind::kInt16:
      return SkipFixed(2, in);
    case RowField::Kind::kInt32:
    case RowField::Kind::kInt64:
      return SkipVarint(in);
    case RowField::Kind::kFloat:
      return SkipFixed(4, in);
    case RowField::Kind::kDouble:
      return SkipFixed(8, in);
    case RowField::Kind::kString:
    case RowField::Kind::kBytes:
      return SkipBytes(in);
    case RowField::Kind::kArray:
    case RowField::Kind::kIterable:
    case RowField::Kind::kMap:
      return SkipItems(field.fields, in);
    case RowField::Kind::kRow:
      return SkipRow(field.fields, in);
    case RowField::Kind::kLogicalCoder:
      return Skip(*field.coder, in);
  }
  return false;
}

bool SkipNullable(const Coder& coder, std::string_view& in) {
  if (in.empty()) return false;
  const char present = in[0];
  in.remove_prefix(1);
  return present == 0 || (present == 1 && Skip(coder.component(0), in));
}

bool SkipWindowedValue(const Coder& coder, std::string_view& in) {
  Header header;
  return windowing::ParseHeader(in, FormatOf(coder.component(1)), &header) &&
         Skip(coder.component(0), in);
}

bool SkipTimer(const Coder& coder, std::string_view& in) {
  windowing::Timer timer;
  return windowing::ParseTimer(in, WalkerOf(coder.component(0)), FormatOf(coder.component(1)),
                               &timer);
}

}  // namespace

bool Skip(const Coder& coder, std::string_view& in) {
  switch (coder.kind) {
    case Kind::kBytes:
    case Kind::kString:
    case Kind::kLengthPrefix:
      return SkipBytes(in);
    case Kind::kVarint:
      return SkipVarint(in);
    case Kind::kBool:
    case Kind::kDouble:
    case Kind::kGlobalWindow:
    case Kind::kInstant:
      return SkipFixed(coder.fixed_size, in);
    case Kind::kKv:
      return Skip(coder.component(0), in) && Skip(coder.component(1), in);
    case Kind::kNullable:
      return SkipNullable(coder, in);
    case Kind::kIterable:
      return SkipIterable(coder.component(0), /*state_backed=*/false, in);
    case Kind::kStateBackedIterable:
      return SkipIterable(coder.component(0), /*state_backed=*/true, in);
    case Kind::kIntervalWindow:
      return SkipFixed(8, in) && SkipVarint(in);
    case Kind::kCustomWindow:
      return SkipFixed(8, in) && Skip(coder.component(0), in);
    case Kind::kWindowedValue:
      return SkipWindowedValue(coder, in);
    case Kind::kParamWindowedValue:
      return Skip(coder.component(0), in);
    case Kind::kTimer:
      return SkipTimer(coder, in);
    case Kind::kShardedKey:
      return SkipBytes(in) && Skip(coder.component(0), in);
    case Kind::kRow:
      return SkipRow(coder.row->fields, in);
    case Kind::kOpaque:
      break;
  }
  return false;
}

bool SkipKvKey(const Coder& kv, std::string_view& in) {
  return kv.kind == Kind::kKv && Skip(kv.component(0), in);
}

bool SplitKv(const Coder& kv, std::string_view whole, std::string_view* key,
             std::string_view* value) {
  std::string_view rest = whole;
  if (!SkipKvKey(kv, rest)) return false;
  *key = whole.substr(0, whole.size() - rest.size());
  return Cut(kv.component(1), rest, value) && rest.empty();
}

Walker WalkerOf(const Coder& coder) {
  return {[](const void* context, std::string_view& in) {
            return Skip(*static_cast<const Coder*>(context), in);
          },
          &coder};
}

windowing::WindowFormat FormatOf(const Coder& window_coder) {
  switch (window_coder.kind) {
    case Kind::kGlobalWindow:
      return windowing::WindowKind::kGlobal;
    case Kind::kIntervalWindow:
      return windowing::WindowKind::kInterval;
    case Kind::kCustomWindow:
      return {windowing::WindowKind::kCustom, WalkerOf(window_coder.component(0))};
    default:
      return windowing::WindowKind::kCustom;
  }
}

bool IsWindowCoder(const Coder& coder) {
  return coder.kind == Kind::kGlobalWindow || coder.kind == Kind::kIntervalWindow ||
         coder.kind == Kind::kCustomWindow;
}

ElementReader::ElementReader(const Coder& windowed_value, bool want_key)
    : element_(nullptr),
      format_(windowing::WindowKind::kGlobal),
      want_key_(want_key),
      param_(windowed_value.kind == Kind::kParamWindowedValue) {
  if (!param_ && windowed_value.kind != Kind::kWindowedValue) return;
  if (!IsKnown(windowed_value)) return;
  element_ = windowed_value.components[0].get();
  if (want_key && element_->kind != Kind::kKv) return;
  format_ = FormatOf(windowed_value.component(1));
  if (param_) {
    std::string_view in = windowed_value.payload;
    if (!windowing::ParseHeader(in, format_, &header_)) return;
    param_header_ = windowed_value.payload;
    param_header_.remove_suffix(in.size());
    // An element of no bytes could be read from an empty frame without end.
    if (element_->min_size == 0) return;
  }
  usable_ = ok_ = true;
}

void ElementReader::Reset(std::string_view frame) {
  rest_ = frame;
  ok_ = usable_;
}

bool ElementReader::Next(ElementView* out) {
  if (rest_.empty() || !ok_) return false;
  ok_ = Parse(out);
  return ok_;
}

bool ElementReader::Parse(ElementView* out) {
  const char* const start = rest_.data();
  std::string_view in = rest_;
  if (param_) {
    out->header = param_header_;
  } else {
    if (!windowing::ParseHeader(in, format_, &header_)) return false;
    out->header = {start, static_cast<size_t>(in.data() - start)};
  }
  const char* const value = in.data();
  if (want_key_) {
    if (!SkipOne(element_->component(0), in)) return false;
    const char* const kv_value = in.data();
    if (!SkipOne(element_->component(1), in)) return false;
    out->key = {value, static_cast<size_t>(kv_value - value)};
    out->kv_value = {kv_value, static_cast<size_t>(in.data() - kv_value)};
  } else if (!SkipOne(*element_, in)) {
    return false;
  }
  out->value = {value, static_cast<size_t>(in.data() - value)};
  out->whole = {start, static_cast<size_t>(in.data() - start)};
  out->timestamp = header_.timestamp;
  out->windows = header_.windows.span();
  out->pane = header_.pane;
  out->metadata = header_.metadata;
  rest_ = in;
  return true;
}

}  // namespace millrace::coders
