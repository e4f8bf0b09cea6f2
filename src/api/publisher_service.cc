#include "api/publisher_service.h"

#include <charconv>
#include <utility>

#include "api/wire.h"

namespace millrace::api {
namespace {

namespace pb = google::pubsub::v1;
using google::protobuf::Empty;

constexpr char kService[] = "google.pubsub.v1.Publisher.";

// PublishResponse by hand: field 1 is the list of ids, which are consecutive numbers.
grpc::ByteBuffer EncodePublishResponse(const pubsub::PublishResult& result) {
  constexpr size_t kFieldMax = 2 + 20;  // tag, length, 20 digits
  grpc_slice slice = grpc_slice_malloc(kFieldMax * result.count);
  char* begin = reinterpret_cast<char*>(GRPC_SLICE_START_PTR(slice));
  char* at = begin;
  for (uint32_t i = 0; i < result.count; ++i) {
    char digits[20];
    char* end = std::to_chars(digits, digits + sizeof(digits), result.first_message_id + i).ptr;
    at = PutBytes(at, 1, {digits, static_cast<size_t>(end - digits)});
  }
  grpc::Slice whole(slice, grpc::Slice::STEAL_REF);
  grpc::Slice used = whole.sub(0, static_cast<size_t>(at - begin));
  return grpc::ByteBuffer(&used, 1);
}

UnaryHandler PublishHandler(pubsub::Broker& broker) {
  return [&broker](SharedBytes request, const CallOptions&, AnswerReply reply) {
    broker.Publish(std::move(request),
                   [reply = std::move(reply)](StatusOr<pubsub::PublishResult> result) mutable {
                     if (!result.ok()) {
                       reply(result.status());
                     } else {
                       reply(Answer{EncodePublishResponse(*result), {}});
                     }
                   });
    return std::shared_ptr<void>();
  };
}

}  // namespace

void AddPublisherMethods(pubsub::Broker& broker, MethodTable& table) {
  auto add = [&table](const char* method, UnaryHandler handler) {
    table.Add(std::string(kService) + method, std::move(handler));
  };
  add("CreateTopic", Typed<pb::Topic, pb::Topic>([&broker](const pb::Topic& request, auto reply) {
        broker.CreateTopic(request, std::move(reply));
      }));
  add("UpdateTopic", Typed<pb::UpdateTopicRequest, pb::Topic>(
                         [&broker](const pb::UpdateTopicRequest& request, auto reply) {
                           broker.UpdateTopic(request, std::move(reply));
                         }));
  add("Publish", PublishHandler(broker));
  add("GetTopic", Typed<pb::GetTopicRequest, pb::Topic>(
                      [&broker](const pb::GetTopicRequest& request, auto reply) {
                        broker.GetTopic(request.topic(), std::move(reply));
                      }));
  add("ListTopics", Typed<pb::ListTopicsRequest, pb::ListTopicsResponse>(
                        [&broker](const pb::ListTopicsRequest& request, auto reply) {
                          broker.ListTopics(request, std::move(reply));
                        }));
  add("ListTopicSubscriptions",
      Typed<pb::ListTopicSubscriptionsRequest, pb::ListTopicSubscriptionsResponse>(
          [&broker](const pb::ListTopicSubscriptionsRequest& request, auto reply) {
            broker.ListTopicSubscriptions(request, std::move(reply));
          }));
  add("DeleteTopic", Typed<pb::DeleteTopicRequest, Empty>(
                         [&broker](const pb::DeleteTopicRequest& request, auto reply) {
                           broker.DeleteTopic(request.topic(), EmptyReply(std::move(reply)));
                         }));
}

}  // namespace millrace::api
