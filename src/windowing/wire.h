// Beam's data-plane encodings of what surrounds an element: integers, instants, windows, panes,
// the header of a windowed value, timers. Parse functions take a view, advance it over what they
// read and return true; on false the input is malformed or too short, and view and outputs are
// unspecified. They never read outside the view. Everything is inline where elements pass.
//
// What does not belong here: element coders (coders/), which need a coder tree.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "windowing/types.h"

namespace millrace::windowing {

// ---- Integers -----------------------------------------------------------------------------------

bool ParseVarintSlow(std::string_view& in, uint64_t* out);

// Base-128, least significant group first; signed values as 64-bit two's complement.
inline bool ParseVarint(std::string_view& in, uint64_t* out) {
  if (in.empty()) return false;
  const auto* p = reinterpret_cast<const unsigned char*>(in.data());
  if (p[0] < 0x80) {
    *out = p[0];
    in.remove_prefix(1);
    return true;
  }
  // Two and three bytes: counts, spans of common windows.
  if (in.size() >= 3 && p[1] < 0x80) {
    *out = (p[0] & 0x7fu) | p[1] << 7;
    in.remove_prefix(2);
    return true;
  }
  if (in.size() >= 3 && p[2] < 0x80) {
    *out = (p[0] & 0x7fu) | (p[1] & 0x7fu) << 7 | p[2] << 14;
    in.remove_prefix(3);
    return true;
  }
  return ParseVarintSlow(in, out);
}
inline bool ParseVarint(std::string_view& in, int64_t* out) {
  uint64_t bits = 0;
  if (!ParseVarint(in, &bits)) return false;
  *out = static_cast<int64_t>(bits);
  return true;
}
void AppendVarint(std::string& out, uint64_t value);
inline void AppendVarint(std::string& out, int64_t value) {
  AppendVarint(out, static_cast<uint64_t>(value));
}

inline uint64_t LoadBigEndian64(const char* p) {
  uint64_t bits;
  std::memcpy(&bits, p, sizeof bits);
  if constexpr (std::endian::native == std::endian::little) bits = __builtin_bswap64(bits);
  return bits;
}
inline uint32_t LoadBigEndian32(const char* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  if constexpr (std::endian::native == std::endian::little) bits = __builtin_bswap32(bits);
  return bits;
}
inline bool ParseBigEndian64(std::string_view& in, uint64_t* out) {
  if (in.size() < 8) return false;
  *out = LoadBigEndian64(in.data());
  in.remove_prefix(8);
  return true;
}
inline bool ParseBigEndian32(std::string_view& in, uint32_t* out) {
  if (in.size() < 4) return false;
  *out = LoadBigEndian32(in.data());
  in.remove_prefix(4);
  return true;
}
void AppendBigEndian64(std::string& out, uint64_t value);
void AppendBigEndian32(std::string& out, uint32_t value);

// Varint length, then so many bytes.
inline bool ParseBytes(std::string_view& in, std::string_view* out) {
  uint64_t size = 0;
  if (!ParseVarint(in, &size) || size > in.size()) return false;
  *out = in.substr(0, size);
  in.remove_prefix(size);
  return true;
}
void AppendBytes(std::string& out, std::string_view bytes);

// Eight bytes whose unsigned order is the order of time.
inline bool ParseInstant(std::string_view& in, Millis* out) {
  uint64_t bits = 0;
  if (!ParseBigEndian64(in, &bits)) return false;
  *out = static_cast<Millis>(bits ^ (uint64_t{1} << 63));
  return true;
}
inline void AppendInstant(std::string& out, Millis time) {
  AppendBigEndian64(out, static_cast<uint64_t>(time) ^ (uint64_t{1} << 63));
}

// ---- Windows and panes --------------------------------------------------------------------------

// Advances over one nested value of a coder that this folder does not know. Without a function the
// value is length-prefixed, the form the planner gives to everything unknown. Borrows `context`.
struct Walker {
  bool (*skip)(const void* context, std::string_view& in) = nullptr;
  const void* context = nullptr;

  bool Skip(std::string_view& in) const {
    if (skip != nullptr) return skip(context, in);
    std::string_view ignored;
    return ParseBytes(in, &ignored);
  }
};

// How the windows of a stream are written: their kind and, for custom windows, what follows the
// maximum timestamp. A WindowKind alone converts.
struct WindowFormat {
  WindowFormat(WindowKind kind, Walker custom = {}) : kind(kind), custom(custom) {}  // NOLINT

  WindowKind kind;
  Walker custom;
};

void AppendWindow(std::string& out, const Window& window);
bool ParseCustomWindow(std::string_view& in, const Walker& walker, Window* out);
inline bool ParseIntervalWindow(std::string_view& in, Window* out) {
  int64_t span = 0;
  if (!ParseInstant(in, &out->end) || !ParseVarint(in, &span) || span < 0) return false;
  out->kind = WindowKind::kInterval;
  return !__builtin_sub_overflow(out->end, span, &out->start);
}
inline bool ParseWindow(std::string_view& in, const WindowFormat& format, Window* out) {
  if (format.kind == WindowKind::kInterval) {
    out->custom.clear();
    return ParseIntervalWindow(in, out);
  }
  if (format.kind == WindowKind::kCustom) return ParseCustomWindow(in, format.custom, out);
  out->kind = WindowKind::kGlobal;
  out->start = kMinTimestamp;
  out->end = kGlobalWindowMax + 1;
  out->custom.clear();
  return true;
}

// The iterable of windows in a header: any count, both length forms.
void AppendWindows(std::string& out, std::span<const Window> windows);
bool ParseWindows(std::string_view& in, const WindowFormat& format, WindowList* out);

void AppendPane(std::string& out, const Pane& pane);
bool ParseAnyPane(std::string_view& in, Pane* out, std::string_view* metadata);
// `metadata` gets the ElementMetadata proto that may follow, mostly empty.
inline bool ParsePane(std::string_view& in, Pane* out, std::string_view* metadata) {
  if (in.empty() || (in[0] & 0xf0) != 0) return ParseAnyPane(in, out, metadata);
  const auto flags = static_cast<unsigned char>(in[0]);
  in.remove_prefix(1);
  *out = {(flags & 1) != 0, (flags & 2) != 0, static_cast<PaneTiming>(flags >> 2), 0, 0};
  *metadata = {};
  return true;
}

// ---- Windowed values ----------------------------------------------------------------------------

// What precedes the element in a windowed value. Reuse one object over many elements: the usual
// single window then costs no allocation.
struct Header {
  Millis timestamp = 0;
  WindowList windows;
  Pane pane;
  std::string_view metadata;  // encoded ElementMetadata in the input, mostly empty
};

void AppendHeader(std::string& out, Millis timestamp, std::span<const Window> windows,
                  const Pane& pane);
inline void AppendHeader(std::string& out, Millis timestamp, const Window& window,
                         const Pane& pane) {
  AppendHeader(out, timestamp, std::span<const Window>(&window, 1), pane);
}
bool ParseAnyHeader(std::string_view& in, const WindowFormat& format, Header* out);
inline bool ParseHeader(std::string_view& in, const WindowFormat& format, Header* out) {
  // One interval window and a pane without indices: nearly every element.
  if (format.kind != WindowKind::kInterval || in.size() < 12 ||
      LoadBigEndian32(in.data() + 8) != 1) {
    return ParseAnyHeader(in, format, out);
  }
  ParseInstant(in, &out->timestamp);
  in.remove_prefix(4);
  Window& window = out->windows.SetSingle();
  window.custom.clear();
  return ParseIntervalWindow(in, &window) && ParsePane(in, &out->pane, &out->metadata);
}

// ---- Timers -------------------------------------------------------------------------------------

// A timer as set, cleared or fired over the Fn API. `key` is the key's nested encoding; key and tag
// are views of what was parsed.
struct Timer {
  std::string_view key;
  std::string_view tag;
  WindowList windows;
  bool clear = false;
  // Meaningless if `clear`.
  Millis fire = 0;
  Millis hold = 0;
  Pane pane;

  // Java writes "no output timestamp" as an instant past the end of time.
  bool HasHold() const { return !clear && hold <= kMaxTimestamp; }
};

void AppendTimer(std::string& out, const Timer& timer);
bool ParseTimer(std::string_view& in, const Walker& key, const WindowFormat& format, Timer* out);

}  // namespace millrace::windowing
