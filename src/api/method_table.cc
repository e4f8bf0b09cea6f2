#include "api/method_table.h"

#include <fmt/format.h>

namespace millrace::api {

Status UnreadableRequest(std::string_view type) {
  return InvalidArgument(
      fmt::format("The request is not a valid {} in protobuf's wire format.", type));
}

}  // namespace millrace::api
