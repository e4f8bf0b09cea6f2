#include "api/json_text.h"

#include <fmt/format.h>

namespace millrace::api {

std::string QuoteJson(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string IndentJson(std::string_view compact) {
  std::string out;
  out.reserve(compact.size() + compact.size() / 4);
  int depth = 0;
  auto new_line = [&] {
    out += '\n';
    out.append(static_cast<size_t>(2 * depth), ' ');
  };
  for (size_t i = 0; i < compact.size(); ++i) {
    char c = compact[i];
    switch (c) {
      case '"': {
        size_t end = i + 1;
        while (end < compact.size() && compact[end] != '"') end += compact[end] == '\\' ? 2 : 1;
        out += compact.substr(i, end + 1 - i);
        i = end;
        break;
      }
      case '{':
      case '[':
        out += c;
        if (i + 1 < compact.size() && compact[i + 1] == (c == '{' ? '}' : ']')) {
          out += compact[++i];
        } else {
          ++depth;
          new_line();
        }
        break;
      case '}':
      case ']':
        --depth;
        new_line();
        out += c;
        break;
      case ',':
        out += c;
        new_line();
        break;
      case ':':
        out += ": ";
        break;
      default:
        out += c;
    }
  }
  return out + "\n";
}

}  // namespace millrace::api
