// The message service without its wires: what api/ (gRPC, REST) and connectors/pubsub call. Knows
// no RPC, no HTTP.
//
// Every call is asynchronous and may be made on any thread; callbacks come on broker executors and
// must not block. What a callback was told is durable. Names, ranges and limits are checked here
// (spec/pubsub 1, 2, 4), so that every door answers alike; errors carry canonical codes and name
// field, value and bound.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/task.h"
#include "base/timer.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/types.h"
#include "storage/open.h"

namespace millrace::pubsub {

namespace pb = google::pubsub::v1;

template <typename T>
using Reply = Callback<void(StatusOr<T>)>;
using StatusReply = Callback<void(Status)>;

// A subscriber's end of a stream. Calls come one at a time on a broker executor and must only hand
// over.
class StreamConsumer {
 public:
  virtual ~StreamConsumer() = default;
  // Answers one Demand, in delivery order.
  virtual void OnDeliveries(std::vector<Delivery> deliveries) = 0;
  // The subscription was updated.
  virtual void OnProperties(SubscriptionProperties properties) = 0;
  // With exactly-once: outcome of ids acked or extended on this stream.
  virtual void OnAckOutcome(bool is_ack, AckOutcome outcome) = 0;
  // The broker ended the stream (deleted, detached, shutting down). Last call.
  virtual void OnEnd(Status status) = 0;
};

struct StreamOptions {
  std::string subscription;
  Duration ack_deadline{};
  std::string client_id;
  int64_t max_outstanding_messages = 0;  // ≤ 0: unlimited
  int64_t max_outstanding_bytes =
      0;  // ≤ 0: unlimited; one larger message goes when nothing is outstanding
};

// The broker's end. Thread-safe. Destroying it is Close.
class Stream {
 public:
  virtual ~Stream() = default;
  // Asks for one OnDeliveries of at most `max_bytes` of messages (at least one message) when there
  // is something and credit allows. One demand is outstanding at a time; this is the back-pressure
  // of a slow connection.
  virtual void Demand(size_t max_bytes) = 0;
  virtual void SetAckDeadline(Duration deadline) = 0;
  virtual void Acknowledge(std::vector<std::string> ack_ids) = 0;
  // Zero is a nack.
  virtual void ModifyAckDeadline(std::vector<std::string> ack_ids, Duration deadline) = 0;
  // Nothing more is delivered; what is leased goes back at once. After Close the consumer is not
  // called any more.
  virtual void Close() = 0;
};

// Watches one subscription for a source (DESIGN 4: the private stream). Thread-safe.
class BacklogWatch {
 public:
  virtual ~BacklogWatch() = default;
  // Exact at some moment between call and answer; covers every message whose publish was answered
  // before the call.
  virtual void Query(Callback<void(StatusOr<BacklogInfo>)> done) = 0;
};

struct BrokerOptions {
  int partitions_per_topic = 1;
  // Idle message expiry, subscription expiry and the like are checked this often.
  Duration housekeeping_interval = std::chrono::seconds(10);
};

// What the broker is made of; all outlive it.
struct BrokerEnvironment {
  storage::Storage* storage = nullptr;
  const Clock* clock = nullptr;
  Timers* timers = nullptr;
  Executor* pool = nullptr;      // shards get a SerialExecutor each on it
  Executor* blocking = nullptr;  // may wait for the disk
  uint64_t random_seed = 0;      // keys of ack ids when the store has none, random names
};

class Broker {
 public:
  // Loads the store's view; then feed it the log (Recover…) before any call. Used by apps/ and
  // tests alike:
  //   auto broker = Broker::Load(env, options);
  //   storage.log->Replay(position, [&](lsn, record) { … broker->Replay(record) … });
  //   broker->Start();
  static StatusOr<std::unique_ptr<Broker>> Load(BrokerEnvironment environment,
                                                BrokerOptions options);
  virtual ~Broker() = default;
  // Records of kinds kCatalog, kTopic, kSubscription.
  virtual Status Replay(const storage::Record& record) = 0;
  virtual void Start() = 0;
  // Ends streams and pulls with UNAVAILABLE; later calls fail with it. Returns when nothing calls
  // out any more.
  virtual void Stop() = 0;

  // Administration: requests and answers as in google.pubsub.v1.
  virtual void CreateTopic(const pb::Topic& topic, Reply<pb::Topic> reply) = 0;
  virtual void GetTopic(const std::string& name, Reply<pb::Topic> reply) = 0;
  virtual void UpdateTopic(const pb::UpdateTopicRequest& request, Reply<pb::Topic> reply) = 0;
  virtual void DeleteTopic(const std::string& name, StatusReply reply) = 0;
  virtual void ListTopics(const pb::ListTopicsRequest& request,
                          Reply<pb::ListTopicsResponse> reply) = 0;
  virtual void ListTopicSubscriptions(const pb::ListTopicSubscriptionsRequest& request,
                                      Reply<pb::ListTopicSubscriptionsResponse> reply) = 0;
  virtual void CreateSubscription(const pb::Subscription& subscription,
                                  Reply<pb::Subscription> reply) = 0;
  virtual void GetSubscription(const std::string& name, Reply<pb::Subscription> reply) = 0;
  virtual void UpdateSubscription(const pb::UpdateSubscriptionRequest& request,
                                  Reply<pb::Subscription> reply) = 0;
  virtual void DeleteSubscription(const std::string& name, StatusReply reply) = 0;
  virtual void ListSubscriptions(const pb::ListSubscriptionsRequest& request,
                                 Reply<pb::ListSubscriptionsResponse> reply) = 0;

  // Publishing. `request` is a serialised PublishRequest: it is scanned, never parsed into a
  // message.
  virtual void Publish(SharedBytes request, Reply<PublishResult> reply) = 0;
  // The outbox of a job: stored once per (producer, sequence) however often it is sent; sequences
  // of a producer grow. `messages` are serialised PubsubMessages; id and time in them are replaced.
  // A repeated one answers OK.
  virtual void PublishOnce(const std::string& topic, const std::string& producer, uint64_t sequence,
                           std::vector<SharedBytes> messages, StatusReply reply) = 0;

  // Consuming. Pull answers empty after its wait; Cancel of the returned handle gives up before
  // that (the client has gone) and takes no message.
  struct PullRequest {
    std::string subscription;
    int32_t max_messages = 0;
    bool return_immediately = false;
    Duration wait = std::chrono::seconds(25);
  };
  virtual std::shared_ptr<void> Pull(PullRequest request,
                                     Reply<std::vector<Delivery>> reply) = 0;  // drop = cancel
  virtual void Acknowledge(const std::string& subscription, std::vector<std::string> ack_ids,
                           StatusReply reply) = 0;
  virtual void ModifyAckDeadline(const std::string& subscription, std::vector<std::string> ack_ids,
                                 int32_t seconds, StatusReply reply) = 0;
  // Errors (not found, wrong type) come as an error here, asynchronously; then the consumer is
  // never called.
  virtual void OpenStream(StreamOptions options, std::shared_ptr<StreamConsumer> consumer,
                          Reply<std::unique_ptr<Stream>> reply) = 0;

  // For a timestamp attribute the event times of the backlog are tracked from now on; `band` as in
  // DESIGN 6.
  virtual void WatchBacklog(const std::string& subscription,
                            std::optional<std::string> timestamp_attribute, Duration band,
                            Reply<std::unique_ptr<BacklogWatch>> reply) = 0;

  // Prometheus text of per-topic and per-subscription figures, computed now.
  virtual void Metrics(Callback<void(std::string)> reply) = 0;
};

}  // namespace millrace::pubsub
