// Elements as they cross stage borders: views into chunks of data-plane bytes. The engine moves
// them, it never decodes values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/strong_id.h"
#include "windowing/types.h"

namespace millrace::engine {

using StageId = StrongId<struct StageIdTag, uint32_t>;
using CollectionId = StrongId<struct CollectionIdTag, uint32_t>;

// One windowed value. Views live as long as the chunk's bytes.
struct Element {
  std::string_view encoded;   // the whole windowed value: timestamp, windows, pane, value
  std::string_view value;     // without the header
  std::string_view key;       // keyed collections: encoded key, else empty
  std::string_view kv_value;  // keyed collections: encoded value of the KV
  windowing::Millis timestamp = 0;
  windowing::Pane pane;
  std::vector<windowing::Window> windows;
};

// What one bundle put into one collection, in order.
struct Chunk {
  CollectionId collection;
  SharedBytes bytes;
  std::vector<Element> elements;
};

}  // namespace millrace::engine
