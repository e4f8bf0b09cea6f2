#include "coders/encode.h"

#include <bit>
#include <limits>

#include "coders/walk.h"

namespace millrace::coders {

void AppendDouble(std::string& out, double value) {
  windowing::AppendBigEndian64(out, std::bit_cast<uint64_t>(value));
}

bool ParseDouble(std::string_view& in, double* out) {
  uint64_t bits = 0;
  if (!windowing::ParseBigEndian64(in, &bits)) return false;
  *out = std::bit_cast<double>(bits);
  return true;
}

void AppendBool(std::string& out, bool value) { out.push_back(value ? 1 : 0); }

bool ParseBool(std::string_view& in, bool* out) {
  if (in.empty() || (in[0] != 0 && in[0] != 1)) return false;
  *out = in[0] == 1;
  in.remove_prefix(1);
  return true;
}

void AppendIterableHead(std::string& out, size_t count) {
  windowing::AppendBigEndian32(out, static_cast<uint32_t>(count));
}

void AppendBatchedIterableHead(std::string& out) {
  windowing::AppendBigEndian32(out, std::numeric_limits<uint32_t>::max());
}

void AppendBatchHead(std::string& out, size_t count) {
  AppendVarint(out, static_cast<uint64_t>(count));
}

void AppendBatchedIterableEnd(std::string& out) { AppendVarint(out, uint64_t{0}); }

void AppendStateBackedEnd(std::string& out, std::string_view token) {
  AppendVarint(out, int64_t{-1});
  AppendBytes(out, token);
}

bool AppendNestedFromOuter(const Coder& coder, std::string_view outer, std::string& out) {
  switch (coder.kind) {
    case Coder::Kind::kBytes:
    case Coder::Kind::kString:
      AppendBytes(out, outer);
      return true;
    case Coder::Kind::kKv: {
      std::string_view key;
      if (!Cut(coder.component(0), outer, &key)) return false;
      out.append(key);
      return AppendNestedFromOuter(coder.component(1), outer, out);
    }
    case Coder::Kind::kNullable:
      if (outer.empty() || (outer[0] != 0 && outer[0] != 1)) return false;
      out.push_back(outer[0]);
      if (outer[0] == 0) return outer.size() == 1;
      return AppendNestedFromOuter(coder.component(0), outer.substr(1), out);
    default: {
      std::string_view rest = outer;
      if (!Skip(coder, rest) || !rest.empty()) return false;
      out.append(outer);
      return true;
    }
  }
}

}  // namespace millrace::coders
