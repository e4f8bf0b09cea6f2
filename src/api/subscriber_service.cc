#include "api/subscriber_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/delivery_encoding.h"
#include "api/unsupported.h"
#include "api/wire.h"

namespace millrace::api {
namespace {

namespace pb = google::pubsub::v1;
using google::protobuf::Empty;
using std::chrono::seconds;

constexpr char kService[] = "google.pubsub.v1.Subscriber.";
constexpr size_t kAckRequestBytesMax = 524'288;

// AcknowledgeRequest or ModifyAckDeadlineRequest, whose fields differ in their numbers only.
struct AckRequest {
  std::string subscription;
  std::vector<std::string> ack_ids;
  int32_t seconds = 0;
};

StatusOr<AckRequest> ParseAckRequest(std::string_view bytes, uint32_t ack_ids_field,
                                     uint32_t seconds_field, std::string_view type) {
  if (bytes.size() > kAckRequestBytesMax) {
    return InvalidArgument(fmt::format(
        "The value for request_size is too large. You passed {} in the request, but the maximum "
        "value is {}.",
        bytes.size(), kAckRequestBytesMax));
  }
  AckRequest request;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) {
      request.subscription = reader.bytes();
    } else if (reader.Is(ack_ids_field, WireType::kBytes)) {
      request.ack_ids.emplace_back(reader.bytes());
    } else if (reader.Is(seconds_field, WireType::kVarint)) {
      request.seconds = static_cast<int32_t>(reader.value());
    }
  }
  if (!reader.ok()) return UnreadableRequest(type);
  return request;
}

Callback<void(Status)> EmptyAnswer(AnswerReply reply) {
  return [reply = std::move(reply)](Status status) mutable {
    if (status.ok()) {
      reply(Answer{ToByteBuffer({}), {}});
    } else {
      reply(std::move(status));
    }
  };
}

std::shared_ptr<void> Acknowledge(pubsub::Broker& broker, const SharedBytes& bytes,
                                  AnswerReply reply) {
  StatusOr<AckRequest> request =
      ParseAckRequest(bytes.view(), /*ack_ids_field=*/2, /*seconds_field=*/0,
                      "google.pubsub.v1.AcknowledgeRequest");
  if (!request.ok()) {
    reply(request.status());
    return nullptr;
  }
  broker.Acknowledge(request->subscription, std::move(request->ack_ids),
                     EmptyAnswer(std::move(reply)));
  return nullptr;
}

std::shared_ptr<void> ModifyAckDeadline(pubsub::Broker& broker, const SharedBytes& bytes,
                                        AnswerReply reply) {
  StatusOr<AckRequest> request =
      ParseAckRequest(bytes.view(), /*ack_ids_field=*/4, /*seconds_field=*/3,
                      "google.pubsub.v1.ModifyAckDeadlineRequest");
  if (!request.ok()) {
    reply(request.status());
    return nullptr;
  }
  broker.ModifyAckDeadline(request->subscription, std::move(request->ack_ids), request->seconds,
                           EmptyAnswer(std::move(reply)));
  return nullptr;
}

// What was pulled for a client that has gone goes back at once.
Task GiveBack(pubsub::Broker& broker, const std::string& subscription,
              const std::vector<pubsub::Delivery>& deliveries) {
  std::vector<std::string> ack_ids;
  ack_ids.reserve(deliveries.size());
  for (const auto& delivery : deliveries) ack_ids.push_back(delivery.ack_id);
  return [&broker, subscription, ack_ids = std::move(ack_ids)]() mutable {
    broker.ModifyAckDeadline(subscription, std::move(ack_ids), 0, [](Status) {});
  };
}

std::shared_ptr<void> Pull(pubsub::Broker& broker, const SharedBytes& bytes,
                           const CallOptions& options, AnswerReply reply) {
  pubsub::Broker::PullRequest request;
  WireReader reader(bytes.view());
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) {
      request.subscription = reader.bytes();
    } else if (reader.Is(2, WireType::kVarint)) {
      request.return_immediately = reader.value() != 0;
    } else if (reader.Is(3, WireType::kVarint)) {
      request.max_messages = static_cast<int32_t>(reader.value());
    }
  }
  if (!reader.ok()) {
    reply(UnreadableRequest("google.pubsub.v1.PullRequest"));
    return nullptr;
  }
  request.wait = PullWait(options);
  std::string subscription = request.subscription;
  return broker.Pull(std::move(request),
                     [&broker, subscription, reply = std::move(reply)](
                         StatusOr<std::vector<pubsub::Delivery>> deliveries) mutable {
                       if (!deliveries.ok()) {
                         reply(deliveries.status());
                         return;
                       }
                       Task give_back;
                       if (!deliveries->empty()) {
                         give_back = GiveBack(broker, subscription, *deliveries);
                       }
                       reply(Answer{EncodeDeliveries(*deliveries, {}), std::move(give_back)});
                     });
}

// Back to pull is where every subscription of this version is; anything else is push.
void ModifyPushConfig(pubsub::Broker& broker, const pb::ModifyPushConfigRequest& request,
                      Callback<void(StatusOr<Empty>)> reply) {
  if (request.push_config().ByteSizeLong() != 0) {
    reply(
        Unimplemented("Push delivery (push_config) is not supported by this version of "
                      "Millrace; only an empty push_config is accepted."));
    return;
  }
  broker.GetSubscription(request.subscription(),
                         [reply = std::move(reply)](StatusOr<pb::Subscription> found) mutable {
                           if (found.ok()) {
                             reply(Empty());
                           } else {
                             reply(found.status());
                           }
                         });
}

}  // namespace

Duration PullWait(const CallOptions& options) {
  constexpr Duration kWait = seconds(25);
  if (options.time_left >= kWait + seconds(1)) return kWait;
  // A caller of less than two seconds gives half of them.
  return std::max(options.time_left - Duration(seconds(1)), options.time_left / 2);
}

void AddSubscriberMethods(pubsub::Broker& broker, MethodTable& table) {
  auto add = [&table](const char* method, UnaryHandler handler) {
    table.Add(std::string(kService) + method, std::move(handler));
  };
  add("CreateSubscription", Typed<pb::Subscription, pb::Subscription>(
                                [&broker](const pb::Subscription& request, auto reply) {
                                  broker.CreateSubscription(request, std::move(reply));
                                }));
  add("GetSubscription", Typed<pb::GetSubscriptionRequest, pb::Subscription>(
                             [&broker](const pb::GetSubscriptionRequest& request, auto reply) {
                               broker.GetSubscription(request.subscription(), std::move(reply));
                             }));
  add("UpdateSubscription",
      Typed<pb::UpdateSubscriptionRequest, pb::Subscription>(
          [&broker](const pb::UpdateSubscriptionRequest& request, auto reply) {
            broker.UpdateSubscription(request, std::move(reply));
          }));
  add("ListSubscriptions", Typed<pb::ListSubscriptionsRequest, pb::ListSubscriptionsResponse>(
                               [&broker](const pb::ListSubscriptionsRequest& request, auto reply) {
                                 broker.ListSubscriptions(request, std::move(reply));
                               }));
  add("DeleteSubscription",
      Typed<pb::DeleteSubscriptionRequest, Empty>(
          [&broker](const pb::DeleteSubscriptionRequest& request, auto reply) {
            broker.DeleteSubscription(request.subscription(), EmptyReply(std::move(reply)));
          }));
  add("ModifyPushConfig", Typed<pb::ModifyPushConfigRequest, Empty>(
                              [&broker](const pb::ModifyPushConfigRequest& request, auto reply) {
                                ModifyPushConfig(broker, request, std::move(reply));
                              }));
  add("ModifyAckDeadline", [&broker](SharedBytes request, const CallOptions&, AnswerReply reply) {
    return ModifyAckDeadline(broker, request, std::move(reply));
  });
  add("Acknowledge", [&broker](SharedBytes request, const CallOptions&, AnswerReply reply) {
    return Acknowledge(broker, request, std::move(reply));
  });
  add("Pull", [&broker](SharedBytes request, const CallOptions& options, AnswerReply reply) {
    return Pull(broker, request, options, std::move(reply));
  });
}

}  // namespace millrace::api
