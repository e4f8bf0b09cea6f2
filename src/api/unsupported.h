// Methods of the official API that this version does not have.
#pragma once

#include <string>
#include <string_view>

#include "api/method_table.h"

namespace millrace::api {

std::string UnsupportedText(std::string_view method);
// Answers every call with UNIMPLEMENTED and that sentence.
UnaryHandler Unsupported(std::string_view method);

}  // namespace millrace::api
