#include "api/unsupported.h"

#include <fmt/format.h>

namespace millrace::api {

std::string UnsupportedText(std::string_view method) {
  return fmt::format("{} is not supported by this version of Millrace.", method);
}

UnaryHandler Unsupported(std::string_view method) {
  return [text = UnsupportedText(method)](SharedBytes, const CallOptions&, AnswerReply reply) {
    reply(Unimplemented(text));
    return std::shared_ptr<void>();
  };
}

}  // namespace millrace::api
