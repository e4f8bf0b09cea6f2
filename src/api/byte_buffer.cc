#include "api/byte_buffer.h"

#include <memory>

namespace millrace::api {

SharedBytes ToSharedBytes(const grpc::ByteBuffer& buffer) {
  if (!buffer.Valid()) return {};
  auto slice = std::make_shared<grpc::Slice>();
  // Reading takes references of the slices and leaves the buffer as it is, but is not declared
  // const.
  auto& readable = const_cast<grpc::ByteBuffer&>(buffer);
  if (!readable.TrySingleSlice(slice.get()).ok() && !readable.DumpToSingleSlice(slice.get()).ok()) {
    return {};
  }
  std::string_view view(reinterpret_cast<const char*>(slice->begin()), slice->size());
  return SharedBytes(std::move(slice), view);
}

grpc::ByteBuffer ToByteBuffer(std::string_view bytes) {
  grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::Slice SliceByReference(SharedBytes bytes) {
  auto* held = new SharedBytes(std::move(bytes));
  return grpc::Slice(
      const_cast<char*>(held->data()), held->size(),
      [](void* owner) { delete static_cast<SharedBytes*>(owner); }, held);
}

}  // namespace millrace::api
