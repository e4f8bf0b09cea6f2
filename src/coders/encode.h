// Typed values for the few encodings the runner itself makes or reads. Append* writes the nested
// form; Parse* is in windowing/wire.h (varint, bytes) or here. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "coders/coder.h"
#include "windowing/wire.h"

namespace millrace::coders {

using windowing::AppendBytes;
using windowing::AppendVarint;
using windowing::ParseBytes;
using windowing::ParseVarint;

void AppendDouble(std::string& out, double value);
bool ParseDouble(std::string_view& in, double* out);
void AppendBool(std::string& out, bool value);
bool ParseBool(std::string_view& in, bool* out);

// An iterable of known length: the head, then the caller appends `count` elements.
// `count` ≤ 2^31 - 1.
void AppendIterableHead(std::string& out, size_t count);

// An iterable of unknown length: head, then any number of batches (a head with n > 0, then n
// elements), then one end.
void AppendBatchedIterableHead(std::string& out);
void AppendBatchHead(std::string& out, size_t count);
void AppendBatchedIterableEnd(std::string& out);
// In a state-backed iterable: the end that says the rest is under StateKey.runner `token`.
void AppendStateBackedEnd(std::string& out, std::string_view token);

// Rewrites one value from the outer context (no length where the value ends with the input; the
// elements of a TestStream) to the nested one. False if `outer` is not exactly one value; `out` may
// then hold a part. For kOpaque false.
bool AppendNestedFromOuter(const Coder& coder, std::string_view outer, std::string& out);

}  // namespace millrace::coders
