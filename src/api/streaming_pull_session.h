// One StreamingPull stream, from its first request to its end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/rpc_service.h"
#include "api/streaming_pull_request.h"
#include "base/mutex.h"
#include "pubsub/broker.h"

namespace millrace::api {

// The open streams of a server. Thread-safe; outlives the server and the broker's streams.
class StreamingPullSessions {
 public:
  explicit StreamingPullSessions(pubsub::Broker& broker) : broker_(broker) {}
  // Makes the reactor of a new stream (a StreamFactory).
  ByteStreamReactor* Open();
  // Ends every stream with `status`, those too of which the broker knows nothing any more.
  void End(const Status& status);

 private:
  friend class StreamingPullSession;
  void Remove(const void* session);

  pubsub::Broker& broker_;
  Mutex mutex_;
  std::unordered_map<const void*, std::weak_ptr<class StreamingPullSession>> open_
      MR_GUARDED_BY(mutex_);
};

// Translates between the requests and responses of a gRPC stream and a broker stream. At most one
// response is being written and one more stands ready; only then the broker is asked for further
// deliveries, so a slow client takes no more than that. Every response carries the subscription's
// properties. gRPC threads and broker executors call it at once; it holds itself until gRPC is
// done. Leases, credit and ordering are the broker's.
class StreamingPullSession final : public ByteStreamReactor,
                                   public pubsub::StreamConsumer,
                                   public std::enable_shared_from_this<StreamingPullSession> {
 public:
  StreamingPullSession(pubsub::Broker& broker, StreamingPullSessions& sessions);
  // Begins to read. Once.
  void Start();
  // Ends the stream as soon as what is being written is out.
  void End(grpc::Status status);

  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override;
  void OnProperties(pubsub::SubscriptionProperties properties) override;
  void OnAckOutcome(bool is_ack, pubsub::AckOutcome outcome) override;
  void OnEnd(Status status) override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OpenBroker(StreamingPullRequest request);
  void Opened(StatusOr<std::unique_ptr<pubsub::Stream>> stream, StreamingPullRequest request);
  // Acks and deadline changes of a checked request.
  static void Apply(pubsub::Stream& stream, StreamingPullRequest request);
  std::shared_ptr<pubsub::Stream> BrokerStream() MR_EXCLUDES(mutex_);
  void CloseBroker();
  // Adds a part to the next response without deliveries, and sends it unless one is under way.
  void SendControl(std::string_view part);
  // Under the lock: takes what is to be written next into out_; true if there is something.
  bool TakeNext() MR_REQUIRES(mutex_);
  // Finishes, or starts the write that TakeNext has prepared, with the lock released.
  void Proceed(bool write);
  bool MayFinish() const MR_REQUIRES(mutex_) {
    return finish_status_.has_value() && !writing_ && !opening_ && !finished_;
  }
  std::string PropertiesField() const MR_REQUIRES(mutex_);

  pubsub::Broker& broker_;
  StreamingPullSessions& sessions_;
  grpc::ByteBuffer in_;      // the read under way
  grpc::ByteBuffer out_;     // the write under way
  bool first_seen_ = false;  // reads come one at a time

  Mutex mutex_;
  std::shared_ptr<pubsub::Stream> stream_ MR_GUARDED_BY(mutex_);  // set once, by Opened
  bool opening_ MR_GUARDED_BY(mutex_) = false;  // between OpenStream and its answer
  bool writing_ MR_GUARDED_BY(mutex_) = false;
  bool silent_ MR_GUARDED_BY(mutex_) = false;  // half-closed or ending: no deliveries any more
  bool finished_ MR_GUARDED_BY(mutex_) = false;
  bool demand_owed_ MR_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> finish_status_ MR_GUARDED_BY(mutex_);
  std::optional<grpc::ByteBuffer> ready_ MR_GUARDED_BY(mutex_);
  std::optional<std::string> control_ MR_GUARDED_BY(mutex_);
  pubsub::SubscriptionProperties properties_ MR_GUARDED_BY(mutex_);
  std::shared_ptr<StreamingPullSession> self_;  // until OnDone
};

}  // namespace millrace::api
