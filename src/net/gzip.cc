#include "net/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "base/log.h"

namespace millrace::net {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: largest window, gzip framing
constexpr size_t kFirstGuess = 4096;

Bytef* Input(std::string_view bytes) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}

// Ends the zlib state on every path.
struct Inflater {
  z_stream stream = {};
  bool ok;
  Inflater() : ok(inflateInit2(&stream, kGzipWindow) == Z_OK) {}
  ~Inflater() {
    if (ok) inflateEnd(&stream);
  }
};

}  // namespace

StatusOr<std::string> Gunzip(std::string_view packed, size_t bytes_max) {
  Inflater inflater;
  if (!inflater.ok) return Internal("zlib could not be set up to unpack a body.");
  z_stream& stream = inflater.stream;
  stream.next_in = Input(packed);
  stream.avail_in = static_cast<uInt>(packed.size());
  // One byte of room above the limit tells "exactly full" from "too much".
  const size_t room_max = bytes_max + 1;
  std::string plain(std::min(room_max, std::max(kFirstGuess, packed.size() * 4)), '\0');
  size_t used = 0;
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(plain.data() + used);
    stream.avail_out = static_cast<uInt>(plain.size() - used);
    int result = inflate(&stream, Z_NO_FLUSH);
    used = plain.size() - stream.avail_out;
    if (used > bytes_max) {
      return ResourceExhausted(
          fmt::format("The body is larger than {} bytes when unpacked.", bytes_max));
    }
    if (result == Z_STREAM_END) {
      if (stream.avail_in == 0) break;
      if (inflateReset(&stream) != Z_OK) return Internal("zlib could not begin the next member.");
    } else if (result != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      return InvalidArgument("The body is not valid gzip.");
    }
    if (stream.avail_out == 0) plain.resize(std::min(room_max, plain.size() * 2));
  }
  plain.resize(used);
  return plain;
}

std::string Gzip(std::string_view plain) {
  z_stream stream = {};
  MR_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                        Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = Input(plain);
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  MR_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace millrace::net
