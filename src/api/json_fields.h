// Finds fields that a JSON object gives twice, which the library's parser lets pass.
#pragma once

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <string_view>

namespace millrace::api {

// Path of the first field of `type` that stands twice in one object of `json`, be it as lowerCamel
// and snake_case. Keys of maps are not fields. Empty as well for malformed JSON: the parser tells
// that.
std::optional<std::string> FindRepeatedField(std::string_view json,
                                             const google::protobuf::Descriptor& type);

}  // namespace millrace::api
