#include "api/delivery_encoding.h"

#include <utility>

#include "api/byte_buffer.h"
#include "api/wire.h"

namespace millrace::api {
namespace {

using pubsub::Delivery;

// Below this a copy into the frame is cheaper than a slice of its own.
constexpr size_t kReferenceBytesMin = 4096;
constexpr uint32_t kReceivedMessages = 1;  // of the response
constexpr uint32_t kAckId = 1, kMessage = 2, kDeliveryAttempt = 3;

size_t AttemptSize(const Delivery& delivery) {
  return delivery.delivery_attempt == 0
             ? 0
             : 1 + VarintSize(static_cast<uint64_t>(delivery.delivery_attempt));
}

size_t FrameSize(const Delivery& delivery) {
  return BytesFieldSize(delivery.ack_id.size()) + AttemptSize(delivery) +
         BytesFieldSize(delivery.message.size());
}

// All of a frame but the message's bytes, which come last.
char* PutFrameHead(char* at, const Delivery& delivery, size_t frame_size) {
  at = PutBytesHead(at, kReceivedMessages, frame_size);
  at = PutBytes(at, kAckId, delivery.ack_id);
  if (delivery.delivery_attempt != 0) {
    *at++ = static_cast<char>(kDeliveryAttempt << 3);
    at = PutVarint(at, static_cast<uint64_t>(delivery.delivery_attempt));
  }
  return PutBytesHead(at, kMessage, delivery.message.size());
}

// Cuts the written part off the front of a slice.
class SliceCutter {
 public:
  explicit SliceCutter(size_t size) : slice_(grpc_slice_malloc(size), grpc::Slice::STEAL_REF) {
    begin_ = cut_ = at = reinterpret_cast<char*>(const_cast<uint8_t*>(slice_.begin()));
  }
  void CutInto(std::vector<grpc::Slice>* out) {
    if (at == cut_) return;
    out->push_back(
        slice_.sub(static_cast<size_t>(cut_ - begin_), static_cast<size_t>(at - begin_)));
    cut_ = at;
  }

 private:
  grpc::Slice slice_;
  char* begin_;
  char* cut_;

 public:
  char* at;
};

}  // namespace

grpc::ByteBuffer EncodeDeliveries(const std::vector<Delivery>& deliveries, std::string_view tail) {
  size_t copied = tail.size();
  for (const Delivery& delivery : deliveries) {
    copied += BytesFieldSize(FrameSize(delivery));
    if (delivery.message.size() >= kReferenceBytesMin) copied -= delivery.message.size();
  }
  if (copied == 0) return ToByteBuffer({});
  SliceCutter out(copied);
  std::vector<grpc::Slice> slices;
  for (const Delivery& delivery : deliveries) {
    out.at = PutFrameHead(out.at, delivery, FrameSize(delivery));
    if (delivery.message.size() >= kReferenceBytesMin) {
      out.CutInto(&slices);
      slices.push_back(SliceByReference(delivery.message));
    } else {
      out.at = PutRaw(out.at, delivery.message.view());
    }
  }
  out.at = PutRaw(out.at, tail);
  out.CutInto(&slices);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace millrace::api
