// JSON as text: quoting and layout. Parsing into messages is in transcoder.h.
#pragma once

#include <string>
#include <string_view>

namespace millrace::api {

// A JSON string literal, quotes included.
std::string QuoteJson(std::string_view text);

// Valid compact JSON laid out as Google's REST APIs print it: two spaces a level, one space after a
// colon, empty objects and arrays closed at once, a newline at the end.
std::string IndentJson(std::string_view compact);

}  // namespace millrace::api
