// Cuts nested-encoded bytes into values without decoding them: the runner's hot operation. All
// functions accept any bytes: they never read outside the view, never allocate on the usual path,
// return false on malformed or short input, and take time linear in the input's size.
#pragma once

#include <span>
#include <string_view>

#include "coders/coder.h"
#include "windowing/types.h"
#include "windowing/wire.h"

namespace millrace::coders {

// Advances over one value. False also for kOpaque. On false `in` is unspecified.
bool Skip(const Coder& coder, std::string_view& in);

// One value, as a slice.
inline bool Cut(const Coder& coder, std::string_view& in, std::string_view* out) {
  const std::string_view before = in;
  if (!Skip(coder, in)) return false;
  *out = before.substr(0, before.size() - in.size());
  return true;
}

// Advances over the key of one KV (a kKv coder), leaving `in` at the value.
bool SkipKvKey(const Coder& kv, std::string_view& in);

// Splits one whole KV encoding into key and value. False if bytes remain.
bool SplitKv(const Coder& kv, std::string_view whole, std::string_view* key,
             std::string_view* value);

// Forms for windowing/wire.h; they borrow the coder.
windowing::Walker WalkerOf(const Coder& coder);
// The format of a window coder (global, interval, custom; anything else reads as custom with a
// length-prefixed rest and is refused by IsWindowCoder).
windowing::WindowFormat FormatOf(const Coder& window_coder);
bool IsWindowCoder(const Coder& coder);

// One element of a data frame. The views point into the frame, except `header` of a parameter
// coder, which points into the coder; windows live in the reader until its next call.
struct ElementView {
  std::string_view whole;  // all its bytes in the frame
  windowing::Millis timestamp = 0;
  std::span<const windowing::Window> windows;
  windowing::Pane pane;
  std::string_view metadata;  // encoded ElementMetadata, mostly empty
  std::string_view header;    // timestamp, windows, pane: header + value is a windowed_value
  std::string_view value;     // the nested-encoded element
  std::string_view key;       // of a KV element, if the reader was asked for keys
  std::string_view kv_value;
};

// Iterates a concatenation of windowed values. Single-threaded, cheap to make, borrows coder and
// frame.
//   ElementReader reader(coder, /*want_key=*/true);
//   reader.Reset(frame);
//   while (reader.Next(&element)) …
//   if (!reader.ok()) …  // malformed
class ElementReader {
 public:
  // `windowed_value` is kWindowedValue or kParamWindowedValue, IsKnown; with `want_key` its element
  // is a kKv; an element under a parameter coder takes at least a byte. Otherwise ok() is false and
  // Next gives nothing.
  ElementReader(const Coder& windowed_value, bool want_key);

  void Reset(std::string_view frame);
  bool Next(ElementView* out);
  // False once a frame was malformed: Next stopped before its end.
  bool ok() const { return ok_; }
  // What Next has not yet read.
  std::string_view rest() const { return rest_; }

 private:
  bool Parse(ElementView* out);

  const Coder* element_;
  windowing::WindowFormat format_;
  bool want_key_;
  bool param_;
  bool usable_ = false;
  bool ok_ = false;
  std::string_view rest_;
  std::string_view param_header_;
  windowing::Header header_;
};

}  // namespace millrace::coders
