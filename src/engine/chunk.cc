#include "engine/chunk.h"

#include <algorithm>

namespace millrace::engine {
namespace {

using storage::ByteReader;
using storage::PutString;
using storage::PutVarint;
using storage::UnZigZag;
using storage::ZigZag;

bool Contiguous(const Chunk& chunk) {
  const char* begin = chunk.bytes.data();
  const char* end = begin + chunk.bytes.size();
  const char* next = nullptr;
  for (const Element& element : chunk.elements) {
    const char* at = element.encoded.data();
    if (at < begin || at + element.encoded.size() > end || (next != nullptr && at != next))
      return false;
    next = at + element.encoded.size();
  }
  return true;
}

}  // namespace

void AppendWindowTo(std::string& out, const windowing::Window& window) {
  out.push_back(static_cast<char>(window.kind));
  if (window.kind == windowing::WindowKind::kGlobal) return;
  PutVarint(out, ZigZag(window.start));
  PutVarint(out, ZigZag(window.end));
  if (window.kind == windowing::WindowKind::kCustom) PutString(out, window.custom);
}

bool ParseWindowFrom(ByteReader& in, windowing::Window* out) {
  const uint8_t kind = in.Byte();
  if (kind > static_cast<uint8_t>(windowing::WindowKind::kCustom)) return false;
  *out = windowing::Window::Global();
  out->kind = static_cast<windowing::WindowKind>(kind);
  if (out->kind == windowing::WindowKind::kGlobal) return in.ok();
  out->start = UnZigZag(in.Varint());
  out->end = UnZigZag(in.Varint());
  if (out->kind == windowing::WindowKind::kCustom) out->custom = std::string(in.String());
  return in.ok();
}

void AppendPaneTo(std::string& out, const windowing::Pane& pane) {
  out.push_back(static_cast<char>((pane.first ? 1 : 0) | (pane.last ? 2 : 0) |
                                  static_cast<uint8_t>(pane.timing) << 2));
  PutVarint(out, ZigZag(pane.index));
  PutVarint(out, ZigZag(pane.nonspeculative_index));
}

bool ParsePaneFrom(ByteReader& in, windowing::Pane* out) {
  const uint8_t bits = in.Byte();
  out->first = bits & 1;
  out->last = bits & 2;
  out->timing = static_cast<windowing::PaneTiming>(bits >> 2 & 3);
  out->index = UnZigZag(in.Varint());
  out->nonspeculative_index = UnZigZag(in.Varint());
  return in.ok();
}

PackedChunk PackedChunk::Pack(const Chunk& chunk, windowing::WindowKind kind, bool keyed) {
  SharedBytes bytes = chunk.bytes;
  const bool shared = Contiguous(chunk);
  if (!shared) {
    std::string joined;
    for (const Element& element : chunk.elements) joined.append(element.encoded);
    bytes = SharedBytes(std::move(joined));
  }
  PackedChunk packed(chunk.collection, kind, std::move(bytes));
  packed.borders_.reserve(chunk.elements.size());
  uint32_t next = 0;
  for (const Element& element : chunk.elements) {
    Border border;
    border.begin =
        shared ? static_cast<uint32_t>(element.encoded.data() - packed.bytes_.data()) : next;
    border.header = static_cast<uint32_t>(element.encoded.size() - element.value.size());
    if (keyed) border.key = static_cast<uint32_t>(element.key.size());
    border.value = static_cast<uint32_t>(element.value.size() - border.key);
    next = border.begin + border.size();
    packed.Add(border, element.timestamp);
    if (kind == windowing::WindowKind::kCustom) packed.AddCustom({element.windows, element.pane});
  }
  return packed;
}

void PackedChunk::Add(const Border& border, windowing::Millis timestamp) {
  borders_.push_back(border);
  content_bytes_ += border.size();
  min_timestamp_ = std::min(min_timestamp_, timestamp);
}

void PackedChunk::AddFrom(const PackedChunk& from, size_t i, windowing::Millis timestamp,
                          uint32_t window) {
  Border border = from.borders_[i];
  border.window = window;
  Add(border, timestamp);
  if (kind_ == windowing::WindowKind::kCustom) custom_.push_back(from.custom_[i]);
}

windowing::Millis PackedChunk::Timestamp(size_t i) const {
  std::string_view encoded = Encoded(i);
  windowing::Millis timestamp = 0;
  windowing::ParseInstant(encoded, &timestamp);
  return timestamp;
}

bool PackedChunk::ReadHeader(size_t i, windowing::Header* scratch) const {
  std::string_view encoded = Encoded(i);
  if (kind_ != windowing::WindowKind::kCustom)
    return windowing::ParseHeader(encoded, kind_, scratch);
  if (!windowing::ParseInstant(encoded, &scratch->timestamp)) return false;
  scratch->windows.SetMany() = custom_[i].windows;
  scratch->pane = custom_[i].pane;
  return true;
}

Element PackedChunk::At(size_t i) const {
  Element element;
  element.encoded = Encoded(i);
  element.value = Value(i);
  if (borders_[i].key > 0) {
    element.key = Key(i);
    element.kv_value = KvValue(i);
  }
  windowing::Header header;
  ReadHeader(i, &header);
  element.timestamp = header.timestamp;
  element.pane = header.pane;
  element.windows.assign(header.windows.begin(), header.windows.end());
  return element;
}

Chunk PackedChunk::Unpack() const {
  Chunk chunk{collection_, bytes_, {}};
  chunk.elements.reserve(size());
  for (size_t i = 0; i < size(); ++i) chunk.elements.push_back(At(i));
  return chunk;
}

SharedBytes PackedChunk::Slice(size_t first, size_t count) const {
  if (count == 0) return {};
  size_t total = 0;
  bool contiguous = true;
  for (size_t i = first; i < first + count; ++i) {
    if (i > first && borders_[i].begin != borders_[i - 1].begin + borders_[i - 1].size())
      contiguous = false;
    total += borders_[i].size();
  }
  if (contiguous) return bytes_.Sub(bytes_.view().substr(borders_[first].begin, total));
  std::string joined;
  joined.reserve(total);
  for (size_t i = first; i < first + count; ++i) joined.append(Encoded(i));
  return SharedBytes(std::move(joined));
}

// collection, kind, count, one run of sizes (header, key, value, window + 1), then the elements'
// bytes.
void PackedChunk::AppendTo(std::string& out) const {
  out.reserve(out.size() + content_bytes_ + borders_.size() * 5 + 32);
  PutVarint(out, collection_.value);
  out.push_back(static_cast<char>(kind_));
  PutVarint(out, borders_.size());
  PutVarint(out, ZigZag(min_timestamp_));
  for (const Border& border : borders_) {
    PutVarint(out, border.header);
    PutVarint(out, border.key);
    PutVarint(out, border.value);
    PutVarint(out, static_cast<uint32_t>(border.window + 1));
  }
  if (kind_ == windowing::WindowKind::kCustom) {
    for (const CustomHeader& header : custom_) {
      PutVarint(out, header.windows.size());
      for (const windowing::Window& window : header.windows) AppendWindowTo(out, window);
      AppendPaneTo(out, header.pane);
    }
  }
  PutVarint(out, content_bytes_);
  const SharedBytes content = Slice(0, size());
  out.append(content.view());
}

bool PackedChunk::Parse(ByteReader& in, const SharedBytes& owner, PackedChunk* out) {
  *out = PackedChunk();
  out->collection_ = CollectionId{static_cast<uint32_t>(in.Varint())};
  const uint8_t kind = in.Byte();
  if (kind > static_cast<uint8_t>(windowing::WindowKind::kCustom)) return false;
  out->kind_ = static_cast<windowing::WindowKind>(kind);
  const uint64_t count = in.Varint();
  out->min_timestamp_ = UnZigZag(in.Varint());
  if (!in.ok() || count > in.rest().size()) return false;
  out->borders_.resize(count);
  uint64_t next = 0;
  for (Border& border : out->borders_) {
    border.begin = static_cast<uint32_t>(next);
    border.header = static_cast<uint32_t>(in.Varint());
    border.key = static_cast<uint32_t>(in.Varint());
    border.value = static_cast<uint32_t>(in.Varint());
    border.window = static_cast<uint32_t>(in.Varint()) - 1;
    next += uint64_t{border.header} + border.key + border.value;
  }
  if (out->kind_ == windowing::WindowKind::kCustom) {
    out->custom_.resize(count);
    for (CustomHeader& header : out->custom_) {
      const uint64_t windows = in.Varint();
      if (!in.ok() || windows > in.rest().size()) return false;
      header.windows.resize(windows);
      for (windowing::Window& window : header.windows) {
        if (!ParseWindowFrom(in, &window)) return false;
      }
      if (!ParsePaneFrom(in, &header.pane)) return false;
    }
  }
  const std::string_view content = in.String();
  if (!in.ok() || content.size() != next) return false;
  out->content_bytes_ = next;
  out->bytes_ = owner.Sub(content);
  return true;
}

}  // namespace millrace::engine
