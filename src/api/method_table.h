// The unary methods of the API, each one once, whatever door a call comes in by (gRPC or REST).
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "api/byte_buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "google/protobuf/empty.pb.h"

namespace millrace::api {

struct CallOptions {
  Duration time_left = Duration::max();  // until the client gives up
};

struct Answer {
  grpc::ByteBuffer body;  // the serialised response
  Task if_unsent;         // run when the client had gone before the answer could reach it
};

using AnswerReply = Callback<void(StatusOr<Answer>)>;

// Takes the serialised request. May be called on any thread, must not block; the reply comes once,
// on any thread, possibly before the handler returns. Dropping the returned handle (which may be
// null) tells that the client has gone: then the reply may stay out.
using UnaryHandler =
    std::function<std::shared_ptr<void>(SharedBytes request, const CallOptions&, AnswerReply)>;

// Filled once while the server is put together, then only read, so any thread may.
class MethodTable {
 public:
  // `name` is the full name in protobuf's form: "google.pubsub.v1.Publisher.CreateTopic".
  void Add(std::string name, UnaryHandler handler) {
    handlers_[std::move(name)] = std::move(handler);
  }
  // Null if the method is not served.
  const UnaryHandler* Find(const std::string& name) const {
    auto it = handlers_.find(name);
    return it == handlers_.end() ? nullptr : &it->second;
  }

 private:
  std::unordered_map<std::string, UnaryHandler> handlers_;
};

// The answer to a request whose bytes are not a message of that type.
Status UnreadableRequest(std::string_view type);

// A handler over generated classes: `call(request, reply)` with reply taking StatusOr<Response>.
template <typename Request, typename Response>
UnaryHandler Typed(std::function<void(const Request&, Callback<void(StatusOr<Response>)>)> call) {
  return [call = std::move(call)](SharedBytes bytes, const CallOptions&, AnswerReply reply) {
    Request request;
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      reply(UnreadableRequest(request.GetTypeName()));
      return std::shared_ptr<void>();
    }
    call(request, [reply = std::move(reply)](StatusOr<Response> response) mutable {
      if (!response.ok()) {
        reply(response.status());
      } else {
        reply(Answer{ToByteBuffer(response->SerializeAsString()), {}});
      }
    });
    return std::shared_ptr<void>();
  };
}

// Turns a reply that takes an Empty into one that takes a Status.
inline Callback<void(Status)> EmptyReply(Callback<void(StatusOr<google::protobuf::Empty>)> reply) {
  return [reply = std::move(reply)](Status status) mutable {
    if (status.ok()) {
      reply(google::protobuf::Empty());
    } else {
      reply(std::move(status));
    }
  };
}

}  // namespace millrace::api
