#include "api/streaming_pull_session.h"

#include <map>
#include <utility>

#include "api/byte_buffer.h"
#include "api/delivery_encoding.h"
#include "api/errors.h"
#include "api/wire.h"

namespace millrace::api {
namespace {

using std::chrono::seconds;

// Messages of one response; well below the 10 MB that clients take, since frames add to it.
constexpr size_t kResponseBytes = 1 << 20;
// Fields of StreamingPullResponse.
constexpr uint32_t kModifyConfirmation = 3, kProperties = 4, kAckConfirmation = 5;

void AppendIds(std::string& out, uint32_t field, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) AppendBytes(out, field, id);
}

}  // namespace

ByteStreamReactor* StreamingPullSessions::Open() {
  auto session = std::make_shared<StreamingPullSession>(broker_, *this);
  {
    MutexLock lock(mutex_);
    open_.emplace(session.get(), session);
  }
  session->Start();
  return session.get();
}

void StreamingPullSessions::End(const Status& status) {
  std::vector<std::shared_ptr<StreamingPullSession>> sessions;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, weak] : open_) {
      if (auto session = weak.lock()) sessions.push_back(std::move(session));
    }
  }
  for (const auto& session : sessions) session->End(ToGrpcStatus(status));
}

void StreamingPullSessions::Remove(const void* session) {
  MutexLock lock(mutex_);
  open_.erase(session);
}

StreamingPullSession::StreamingPullSession(pubsub::Broker& broker, StreamingPullSessions& sessions)
    : broker_(broker), sessions_(sessions) {}

void StreamingPullSession::Start() {
  self_ = shared_from_this();
  StartRead(&in_);
}

void StreamingPullSession::OnReadDone(bool ok) {
  if (!ok) {
    // Half-closed or cancelled; OnCancel ends the stream in the second case.
    {
      MutexLock lock(mutex_);
      silent_ = true;
      ready_.reset();
    }
    CloseBroker();
    if (!first_seen_) End(ToGrpcStatus(StreamingPullRequest().CheckFirst()));
    return;
  }
  StatusOr<StreamingPullRequest> request = StreamingPullRequest::Parse(ToSharedBytes(in_).view());
  in_.Clear();
  if (!request.ok()) return End(ToGrpcStatus(request.status()));
  if (!std::exchange(first_seen_, true)) return OpenBroker(*std::move(request));
  if (Status status = request->CheckLater(); !status.ok()) return End(ToGrpcStatus(status));
  if (request->empty) {
    SendControl({});
  } else {
    Apply(*BrokerStream(), *std::move(request));
  }
  // Safe even if the stream was finished meanwhile: gRPC keeps it until this reaction returns.
  StartRead(&in_);
}

void StreamingPullSession::OpenBroker(StreamingPullRequest request) {
  if (Status status = request.CheckFirst(); !status.ok()) return End(ToGrpcStatus(status));
  {
    MutexLock lock(mutex_);
    if (finish_status_) return;
    opening_ = true;
  }
  pubsub::StreamOptions options;
  options.subscription = request.subscription;
  options.ack_deadline = seconds(request.stream_ack_deadline_seconds);
  options.client_id = request.client_id;
  options.max_outstanding_messages = request.max_outstanding_messages;
  options.max_outstanding_bytes = request.max_outstanding_bytes;
  auto self = shared_from_this();
  broker_.OpenStream(std::move(options), self,
                     [self, request = std::move(request)](
                         StatusOr<std::unique_ptr<pubsub::Stream>> stream) mutable {
                       self->Opened(std::move(stream), std::move(request));
                     });
}

void StreamingPullSession::Opened(StatusOr<std::unique_ptr<pubsub::Stream>> stream,
                                  StreamingPullRequest request) {
  bool opened = stream.ok();
  std::shared_ptr<pubsub::Stream> broker_stream;
  if (opened) {
    broker_stream = *std::move(stream);
    {
      MutexLock lock(mutex_);
      stream_ = broker_stream;
    }
    StartSendInitialMetadata();
    Apply(*broker_stream, std::move(request));
    // Before opening_ falls, so that the stream cannot be finished in between.
    StartRead(&in_);
  }
  bool ending, finish;
  {
    MutexLock lock(mutex_);
    opening_ = false;
    if (!opened && !finish_status_) finish_status_ = ToGrpcStatus(stream.status());
    ending = finish_status_.has_value();
    finish = MayFinish();
  }
  if (!ending) {
    broker_stream->Demand(kResponseBytes);
  } else {
    CloseBroker();
  }
  if (finish) Proceed(false);
}

void StreamingPullSession::Apply(pubsub::Stream& stream, StreamingPullRequest request) {
  if (request.stream_ack_deadline_seconds != 0) {
    stream.SetAckDeadline(seconds(request.stream_ack_deadline_seconds));
  }
  if (!request.ack_ids.empty()) stream.Acknowledge(std::move(request.ack_ids));
  if (request.modify_deadline_ack_ids.empty()) return;
  std::map<int32_t, std::vector<std::string>> by_deadline;
  for (size_t i = 0; i < request.modify_deadline_ack_ids.size(); ++i) {
    by_deadline[request.modify_deadline_seconds[i]].push_back(
        std::move(request.modify_deadline_ack_ids[i]));
  }
  for (auto& [deadline, ids] : by_deadline) {
    stream.ModifyAckDeadline(std::move(ids), seconds(deadline));
  }
}

void StreamingPullSession::CloseBroker() {
  if (std::shared_ptr<pubsub::Stream> stream = BrokerStream()) stream->Close();
}

std::shared_ptr<pubsub::Stream> StreamingPullSession::BrokerStream() {
  MutexLock lock(mutex_);
  return stream_;
}

void StreamingPullSession::OnDeliveries(std::vector<pubsub::Delivery> deliveries) {
  std::string properties;
  {
    MutexLock lock(mutex_);
    if (silent_) return;
    properties = PropertiesField();
  }
  grpc::ByteBuffer body = EncodeDeliveries(deliveries, properties);
  bool write;
  {
    MutexLock lock(mutex_);
    if (silent_) return;
    ready_ = std::move(body);
    write = TakeNext();
  }
  if (write) Proceed(true);
}

void StreamingPullSession::OnProperties(pubsub::SubscriptionProperties properties) {
  {
    MutexLock lock(mutex_);
    properties_ = properties;
    if (opening_) return;  // the first response will tell them
  }
  SendControl({});
}

void StreamingPullSession::OnAckOutcome(bool is_ack, pubsub::AckOutcome outcome) {
  std::string ids;
  AppendIds(ids, 1, outcome.done);
  AppendIds(ids, 2, outcome.invalid);
  if (is_ack) AppendIds(ids, 3, outcome.unordered);
  AppendIds(ids, is_ack ? 4 : 3, outcome.failed_for_now);
  std::string part;
  AppendBytes(part, is_ack ? kAckConfirmation : kModifyConfirmation, ids);
  SendControl(part);
}

void StreamingPullSession::OnEnd(Status status) {
  if (status.ok()) status = Unavailable("The stream was ended by the server.");
  End(ToGrpcStatus(status));
}

void StreamingPullSession::End(grpc::Status status) {
  bool finish;
  {
    MutexLock lock(mutex_);
    silent_ = true;
    ready_.reset();
    control_.reset();
    if (!finish_status_) finish_status_ = std::move(status);
    finish = MayFinish();
  }
  if (finish) Proceed(false);
}

void StreamingPullSession::SendControl(std::string_view part) {
  bool write;
  {
    MutexLock lock(mutex_);
    if (finish_status_) return;
    if (!control_) control_.emplace();
    control_->append(part);
    write = TakeNext();
  }
  if (write) Proceed(true);
}

bool StreamingPullSession::TakeNext() {
  if (writing_ || opening_ || finish_status_ || (!control_ && !ready_)) return false;
  if (control_) {
    out_ = ToByteBuffer(*control_ + PropertiesField());
    control_.reset();
  } else {
    out_ = *std::move(ready_);
    ready_.reset();
    demand_owed_ = true;
  }
  writing_ = true;
  return true;
}

void StreamingPullSession::Proceed(bool write) {
  std::shared_ptr<pubsub::Stream> demanded;
  grpc::Status status;
  {
    MutexLock lock(mutex_);
    if (write) {
      if (std::exchange(demand_owed_, false) && !silent_) demanded = stream_;
    } else {
      if (!MayFinish()) return;
      finished_ = true;
      status = *finish_status_;
    }
  }
  if (!write) {
    auto self = shared_from_this();
    CloseBroker();
    Finish(std::move(status));
    return;
  }
  StartWrite(&out_);
  // From here on another thread may finish the stream.
  if (demanded) demanded->Demand(kResponseBytes);
}

void StreamingPullSession::OnWriteDone(bool ok) {
  bool write = false, finish;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok && !finish_status_) {
      finish_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "The client has gone.");
      silent_ = true;
    }
    finish = MayFinish();
    if (!finish) write = TakeNext();
  }
  if (finish || write) Proceed(write);
}

void StreamingPullSession::OnCancel() {
  CloseBroker();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "The client has gone."));
}

void StreamingPullSession::OnDone() {
  sessions_.Remove(this);
  std::shared_ptr<pubsub::Stream> stream;
  {
    // The broker's stream may hold its consumer, this session, in turn.
    MutexLock lock(mutex_);
    stream.swap(stream_);
  }
  if (stream) stream->Close();
  stream.reset();
  std::shared_ptr<StreamingPullSession> last = std::move(self_);
}

std::string StreamingPullSession::PropertiesField() const {
  std::string fields;
  if (properties_.exactly_once_delivery) fields += {'\x08', '\x01'};
  if (properties_.message_ordering) fields += {'\x10', '\x01'};
  std::string out;
  AppendBytes(out, kProperties, fields);
  return out;
}

}  // namespace millrace::api
