// gRPC byte buffers seen as the bytes of this project, and back.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace millrace::api {

// A buffer of one slice is held by reference; several slices are joined by one copy.
SharedBytes ToSharedBytes(const grpc::ByteBuffer& buffer);
grpc::ByteBuffer ToByteBuffer(std::string_view bytes);
// Keeps the bytes' owner alive instead of copying.
grpc::Slice SliceByReference(SharedBytes bytes);

}  // namespace millrace::api
