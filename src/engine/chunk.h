// Elements as the engine keeps them: the bytes once, and for each element where its parts lie.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "engine/element.h"
#include "storage/encoding.h"
#include "windowing/types.h"
#include "windowing/wire.h"

namespace millrace::engine {

// Offsets into a chunk's bytes: header, then key, then value, one after another.
struct Border {
  static constexpr uint32_t kAllWindows = 0xffffffff;
  uint32_t begin = 0;
  uint32_t header = 0, key = 0, value = 0;  // sizes
  uint32_t window =
      kAllWindows;  // grouped input: the one window of the element that this entry stands for
  uint32_t size() const { return header + key + value; }
};

// Windows the engine cannot read from the header itself.
struct CustomHeader {
  std::vector<windowing::Window> windows;
  windowing::Pane pane;
};

// Immutable once shared; any thread. The bytes may be shared with other chunks that hold other
// elements of them.
class PackedChunk {
 public:
  PackedChunk() = default;
  PackedChunk(CollectionId collection, windowing::WindowKind kind, SharedBytes bytes)
      : collection_(collection), kind_(kind), bytes_(std::move(bytes)) {}

  // Takes over a bundle's output. Copies no bytes if the elements follow each other in the chunk's.
  static PackedChunk Pack(const Chunk& chunk, windowing::WindowKind kind, bool keyed);
  // The same bytes with some of the entries of `from`.
  static PackedChunk Part(const PackedChunk& from) {
    return PackedChunk(from.collection_, from.kind_, from.bytes_);
  }

  // The same elements as a chunk of another collection over `bytes`, which have the same layout.
  PackedChunk Moved(CollectionId collection, SharedBytes bytes) const {
    PackedChunk moved = *this;
    moved.collection_ = collection;
    moved.bytes_ = std::move(bytes);
    return moved;
  }

  void Add(const Border& border, windowing::Millis timestamp);
  void AddCustom(CustomHeader header) { custom_.push_back(std::move(header)); }
  void AddFrom(const PackedChunk& from, size_t i, windowing::Millis timestamp,
               uint32_t window = Border::kAllWindows);

  CollectionId collection() const { return collection_; }
  size_t size() const { return borders_.size(); }
  bool empty() const { return borders_.empty(); }
  size_t content_bytes() const { return content_bytes_; }
  windowing::Millis min_timestamp() const { return min_timestamp_; }
  const std::vector<Border>& borders() const { return borders_; }
  const SharedBytes& bytes() const { return bytes_; }

  std::string_view Encoded(size_t i) const {
    return bytes_.view().substr(borders_[i].begin, borders_[i].size());
  }
  std::string_view Key(size_t i) const {
    return bytes_.view().substr(borders_[i].begin + borders_[i].header, borders_[i].key);
  }
  // After the header: the key too, if keyed.
  std::string_view Value(size_t i) const {
    return bytes_.view().substr(borders_[i].begin + borders_[i].header,
                                borders_[i].key + borders_[i].value);
  }
  std::string_view KvValue(size_t i) const {
    return bytes_.view().substr(borders_[i].begin + borders_[i].header + borders_[i].key,
                                borders_[i].value);
  }
  windowing::Millis Timestamp(size_t i) const;
  // The element's header; `scratch` is reused between calls.
  bool ReadHeader(size_t i, windowing::Header* scratch) const;
  Element At(size_t i) const;
  Chunk Unpack() const;

  // Elements [first, first + count) as one run of bytes; shares if they are contiguous.
  SharedBytes Slice(size_t first, size_t count) const;

  void AppendTo(std::string& out) const;
  // Views the bytes of `owner`, of which `in` must be a part.
  static bool Parse(storage::ByteReader& in, const SharedBytes& owner, PackedChunk* out);

 private:
  CollectionId collection_;
  windowing::WindowKind kind_ = windowing::WindowKind::kGlobal;
  SharedBytes bytes_;
  std::vector<Border> borders_;
  std::vector<CustomHeader> custom_;  // one an entry, kCustom only
  size_t content_bytes_ = 0;
  windowing::Millis min_timestamp_ = windowing::kMaxTimestamp;
};

void AppendWindowTo(std::string& out, const windowing::Window& window);
bool ParseWindowFrom(storage::ByteReader& in, windowing::Window* out);
void AppendPaneTo(std::string& out, const windowing::Pane& pane);
bool ParsePaneFrom(storage::ByteReader& in, windowing::Pane* out);

}  // namespace millrace::engine
