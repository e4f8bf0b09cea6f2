#include "windowing/wire.h"

namespace millrace::windowing {
namespace {

constexpr unsigned char kPaneFirst = 0x01;
constexpr unsigned char kPaneLast = 0x02;
constexpr unsigned char kPaneMetadata = 0x80;

enum PaneForm : unsigned char { kNoIndex = 0, kOneIndex = 1, kTwoIndices = 2 };

constexpr size_t kVarintMax = 10;

char* StoreVarint(char* p, uint64_t value) {
  while (value >= 0x80) {
    *p++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *p++ = static_cast<char>(value);
  return p;
}

char* StoreBigEndian64(char* p, uint64_t value) {
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
  std::memcpy(p, &value, sizeof value);
  return p + sizeof value;
}

char* StoreBigEndian32(char* p, uint32_t value) {
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap32(value);
  std::memcpy(p, &value, sizeof value);
  return p + sizeof value;
}

char* StoreInstant(char* p, Millis time) {
  return StoreBigEndian64(p, static_cast<uint64_t>(time) ^ (uint64_t{1} << 63));
}

constexpr size_t kPaneMax = 1 + 2 * kVarintMax;

char* StorePane(char* p, const Pane& pane) {
  const bool early = pane.timing == PaneTiming::kEarly;
  unsigned char flags = static_cast<unsigned char>(static_cast<unsigned>(pane.timing) << 2);
  if (pane.first) flags |= kPaneFirst;
  if (pane.last) flags |= kPaneLast;
  PaneForm form = kTwoIndices;
  if (pane.index == 0 && pane.nonspeculative_index == 0) {
    form = kNoIndex;
  } else if (pane.nonspeculative_index == (early ? -1 : pane.index)) {
    form = kOneIndex;
  }
  *p++ = static_cast<char>(flags | form << 4);
  if (form != kNoIndex) p = StoreVarint(p, pane.index);
  if (form == kTwoIndices) p = StoreVarint(p, pane.nonspeculative_index);
  return p;
}

bool ParseSomeWindows(std::string_view& in, const WindowFormat& format, uint64_t count,
                      std::vector<Window>& out) {
  // An interval or custom window takes at least nine bytes, so the input bounds the allocation;
  // global windows take none and are all the same, hence more than one is refused.
  const uint64_t most = format.kind != WindowKind::kGlobal ? in.size() / 8 : out.empty() ? 1 : 0;
  if (count > most) return false;
  for (uint64_t i = 0; i < count; ++i) {
    out.emplace_back();
    if (!ParseWindow(in, format, &out.back())) return false;
  }
  return true;
}

}  // namespace

bool ParseVarintSlow(std::string_view& in, uint64_t* out) {
  uint64_t value = 0;
  const size_t limit = in.size() < 10 ? in.size() : 10;
  for (size_t i = 0; i < limit; ++i) {
    const auto byte = static_cast<unsigned char>(in[i]);
    if (i == 9 && byte > 1) return false;
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *out = value;
      in.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

void AppendVarint(std::string& out, uint64_t value) {
  char bytes[kVarintMax];
  out.append(bytes, StoreVarint(bytes, value) - bytes);
}

void AppendBigEndian64(std::string& out, uint64_t value) {
  char bytes[sizeof value];
  out.append(bytes, StoreBigEndian64(bytes, value) - bytes);
}

void AppendBigEndian32(std::string& out, uint32_t value) {
  char bytes[sizeof value];
  out.append(bytes, StoreBigEndian32(bytes, value) - bytes);
}

void AppendBytes(std::string& out, std::string_view bytes) {
  AppendVarint(out, static_cast<uint64_t>(bytes.size()));
  out.append(bytes);
}

void AppendWindow(std::string& out, const Window& window) {
  switch (window.kind) {
    case WindowKind::kGlobal:
      return;
    case WindowKind::kInterval:
      AppendInstant(out, window.end);
      AppendVarint(out, SubMillis(window.end, window.start));
      return;
    case WindowKind::kCustom:
      out.append(window.custom);
      return;
  }
}

bool ParseCustomWindow(std::string_view& in, const Walker& walker, Window* out) {
  const std::string_view before = in;
  Millis max_timestamp = 0;
  if (!ParseInstant(in, &max_timestamp) || !walker.Skip(in)) return false;
  *out = Window::Custom(max_timestamp, std::string(before.substr(0, before.size() - in.size())));
  return true;
}

void AppendWindows(std::string& out, std::span<const Window> windows) {
  AppendBigEndian32(out, static_cast<uint32_t>(windows.size()));
  for (const Window& window : windows) AppendWindow(out, window);
}

bool ParseWindows(std::string_view& in, const WindowFormat& format, WindowList* out) {
  uint32_t count = 0;
  if (!ParseBigEndian32(in, &count)) return false;
  if (count == 1) return ParseWindow(in, format, &out->SetSingle());
  std::vector<Window>& windows = out->SetMany();
  if (count <= INT32_MAX) return ParseSomeWindows(in, format, count, windows);
  if (count != UINT32_MAX) return false;
  while (true) {
    uint64_t batch = 0;
    if (!ParseVarint(in, &batch)) return false;
    if (batch == 0) return true;
    if (!ParseSomeWindows(in, format, batch, windows)) return false;
  }
}

void AppendPane(std::string& out, const Pane& pane) {
  char bytes[kPaneMax];
  out.append(bytes, StorePane(bytes, pane) - bytes);
}

bool ParseAnyPane(std::string_view& in, Pane* out, std::string_view* metadata) {
  if (in.empty()) return false;
  const auto flags = static_cast<unsigned char>(in[0]);
  in.remove_prefix(1);
  out->first = (flags & kPaneFirst) != 0;
  out->last = (flags & kPaneLast) != 0;
  out->timing = static_cast<PaneTiming>((flags >> 2) & 3);
  out->index = 0;
  out->nonspeculative_index = 0;
  const unsigned form = (flags >> 4) & 7;
  if (form > kTwoIndices) return false;
  if (form != kNoIndex) {
    if (!ParseVarint(in, &out->index)) return false;
    if (form == kOneIndex) {
      out->nonspeculative_index = out->timing == PaneTiming::kEarly ? -1 : out->index;
    } else if (!ParseVarint(in, &out->nonspeculative_index)) {
      return false;
    }
  }
  *metadata = {};
  return (flags & kPaneMetadata) == 0 || ParseBytes(in, metadata);
}

void AppendHeader(std::string& out, Millis timestamp, std::span<const Window> windows,
                  const Pane& pane) {
  char bytes[12 + 8 + kVarintMax + kPaneMax];
  char* p = StoreInstant(bytes, timestamp);
  p = StoreBigEndian32(p, static_cast<uint32_t>(windows.size()));
  if (windows.size() == 1 && windows[0].kind == WindowKind::kInterval) {
    p = StoreInstant(p, windows[0].end);
    p = StoreVarint(p, SubMillis(windows[0].end, windows[0].start));
  } else {
    out.append(bytes, p - bytes);
    for (const Window& window : windows) AppendWindow(out, window);
    p = bytes;
  }
  p = StorePane(p, pane);
  out.append(bytes, p - bytes);
}

bool ParseAnyHeader(std::string_view& in, const WindowFormat& format, Header* out) {
  return ParseInstant(in, &out->timestamp) && ParseWindows(in, format, &out->windows) &&
         ParsePane(in, &out->pane, &out->metadata);
}

void AppendTimer(std::string& out, const Timer& timer) {
  out.append(timer.key);
  AppendBytes(out, timer.tag);
  AppendWindows(out, timer.windows.span());
  out.push_back(timer.clear ? 1 : 0);
  if (timer.clear) return;
  AppendInstant(out, timer.fire);
  AppendInstant(out, timer.hold);
  AppendPane(out, timer.pane);
}

bool ParseTimer(std::string_view& in, const Walker& key, const WindowFormat& format, Timer* out) {
  const std::string_view before = in;
  if (!key.Skip(in)) return false;
  out->key = before.substr(0, before.size() - in.size());
  if (!ParseBytes(in, &out->tag) || !ParseWindows(in, format, &out->windows) || in.empty()) {
    return false;
  }
  const char clear = in[0];
  in.remove_prefix(1);
  if (clear != 0 && clear != 1) return false;
  out->clear = clear == 1;
  out->fire = out->hold = 0;
  out->pane = Pane::NoFiring();
  if (out->clear) return true;
  std::string_view metadata;
  return ParseInstant(in, &out->fire) && ParseInstant(in, &out->hold) &&
         ParsePane(in, &out->pane, &metadata);
}

}  // namespace millrace::windowing
