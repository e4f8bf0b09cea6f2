#include "connectors/pubsub/pubsub_source.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "connectors/pubsub/lease_keeper.h"
#include "connectors/pubsub/message_fields.h"
#include "fmt/format.h"
#include "windowing/wire.h"

namespace millrace::connectors::pubsub {
namespace {

namespace broker = millrace::pubsub;
using windowing::Millis;

constexpr Duration kLease = std::chrono::seconds(60);
constexpr Duration kExtendEvery = std::chrono::seconds(20);
constexpr Duration kRetry = std::chrono::seconds(1);
constexpr int64_t kOutstandingMessages = 50'000;
constexpr int64_t kOutstandingBytes = 256 << 20;

// Lives on its executor; the engine's calls are posted there. Shared with the callbacks it hands
// out.
class StreamSource : public std::enable_shared_from_this<StreamSource>,
                     public broker::StreamConsumer {
 public:
  StreamSource(ReadSettings settings, std::string own_subscription, SourceEnvironment environment,
               std::function<void(Status)> report)
      : settings_(std::move(settings)),
        own_subscription_(std::move(own_subscription)),
        environment_(environment),
        report_(std::move(report)),
        executor_(*environment.pool) {}

  void Start() {
    Post([](StreamSource& self) { self.Prepare(); });
    ScheduleExtension();
  }

  void Pull(size_t max_elements, size_t max_bytes, Callback<void(engine::SourceBatch)> done) {
    Post([max_elements, max_bytes, done = std::move(done)](StreamSource& self) mutable {
      self.pull_ = PendingPull{max_elements, max_bytes, std::move(done)};
      self.Answer();
    });
  }

  void Ack(std::vector<uint64_t> handles, Callback<void(Status)> done) {
    Post([handles = std::move(handles), done = std::move(done)](StreamSource& self) mutable {
      auto ids = std::make_shared<std::vector<std::string>>(self.leases_.Take(handles));
      self.SendAck(std::move(ids), std::move(done));
    });
  }

  void Release(std::vector<uint64_t> handles) {
    Post([handles = std::move(handles)](StreamSource& self) {
      self.GiveBack(self.leases_.Take(handles));
    });
  }

  void Watermark(Callback<void(StatusOr<Millis>)> done) {
    Post([done = std::move(done)](StreamSource& self) mutable {
      if (self.watch_ == nullptr) {
        done(windowing::kMinTimestamp);
        return;
      }
      self.watch_->Query([done = std::move(done), settings = self.settings_](
                             StatusOr<broker::BacklogInfo> backlog) mutable {
        if (!backlog.ok()) {
          done(backlog.status());
        } else {
          done(SourceWatermark(*backlog, settings));
        }
      });
    });
  }

  void Drain() {
    Post([](StreamSource& self) {
      self.draining_ = true;  // the stream stays: it holds the leases of what is in hand
      self.Answer();
    });
  }

  void Stop() {
    Post([](StreamSource& self) {
      self.stopped_ = true;
      self.CloseStream();
      self.watch_.reset();
      self.environment_.timers->Cancel(self.extension_);
      if (self.pull_)
        std::exchange(self.pull_, std::nullopt)
            ->done({.status = Cancelled("the source was stopped")});
    });
  }

  // broker::StreamConsumer
  void OnDeliveries(std::vector<broker::Delivery> deliveries) override {
    Post([deliveries = std::move(deliveries)](StreamSource& self) mutable {
      self.Take(std::move(deliveries));
    });
  }
  void OnProperties(broker::SubscriptionProperties) override {}
  void OnAckOutcome(bool, broker::AckOutcome) override {}
  void OnEnd(Status status) override {
    Post([status = std::move(status)](StreamSource& self) {
      self.stream_.reset();
      self.demanded_ = false;
      if (!self.draining_ && !self.stopped_) self.Trouble(status);
    });
  }

 private:
  struct PendingPull {
    size_t max_elements, max_bytes;
    Callback<void(engine::SourceBatch)> done;
  };

  template <typename F>
  void Post(F f) {
    executor_.Post([self = shared_from_this(), f = std::move(f)]() mutable { f(*self); });
  }

  // Subscription (made for a topic), its settings, the stream, the watch: one after the other.
  void Prepare() {
    if (stopped_ || draining_) return;
    if (settings_.topic.empty()) {
      CheckSettings(settings_.subscription);
      return;
    }
    broker::pb::Subscription wanted;
    wanted.set_name(own_subscription_);
    wanted.set_topic(settings_.topic);
    wanted.set_ack_deadline_seconds(60);
    environment_.broker->CreateSubscription(
        wanted, [self = shared_from_this()](StatusOr<broker::pb::Subscription> made) {
          self->Post([status = made.status()](StreamSource& source) {
            if (!status.ok() && status.code() != StatusCode::kAlreadyExists) {
              source.Trouble(status);
            } else {
              source.settings_.subscription = source.own_subscription_;
              source.CheckSettings(source.own_subscription_);
            }
          });
        });
  }

  void CheckSettings(const std::string& name) {
    environment_.broker->GetSubscription(
        name, [self = shared_from_this()](StatusOr<broker::pb::Subscription> found) {
          self->Post([found = std::move(found)](StreamSource& source) {
            if (!found.ok()) {
              source.Trouble(found.status());
              return;
            }
            SubscriptionCheck check = CheckSubscription(*found);
            if (!std::exchange(source.checked_, true)) {
              for (const std::string& warning : check.warnings)
                source.report_(FailedPrecondition(warning));
            }
            if (!check.error.ok()) {
              source.Trouble(check.error);
            } else {
              source.Watch();
            }
          });
        });
  }

  void Watch() {
    if (stopped_ || draining_) return;
    std::optional<std::string> attribute;
    if (!settings_.timestamp_attribute.empty()) attribute = settings_.timestamp_attribute;
    environment_.broker->WatchBacklog(
        settings_.subscription, attribute, settings_.band,
        [self = shared_from_this()](StatusOr<std::unique_ptr<broker::BacklogWatch>> watch) {
          self->Post([watch = std::move(watch)](StreamSource& source) mutable {
            if (!watch.ok()) {
              source.Trouble(watch.status());
            } else {
              source.watch_ = *std::move(watch);
              source.OpenStream();
            }
          });
        });
  }

  void OpenStream() {
    if (stopped_ || draining_) return;
    broker::StreamOptions options;
    options.subscription = settings_.subscription;
    options.ack_deadline = kLease;
    options.client_id = "millrace-dataflow";
    options.max_outstanding_messages = kOutstandingMessages;
    options.max_outstanding_bytes = kOutstandingBytes;
    environment_.broker->OpenStream(
        options, shared_from_this(),
        [self = shared_from_this()](StatusOr<std::unique_ptr<broker::Stream>> stream) {
          self->Post([stream = std::move(stream)](StreamSource& source) mutable {
            if (!stream.ok()) {
              source.Trouble(stream.status());
              return;
            }
            source.stream_ = *std::move(stream);
            if (source.stopped_) source.CloseStream();
            source.Answer();
          });
        });
  }

  void CloseStream() {
    demanded_ = false;
    if (stream_ == nullptr) return;
    stream_->Close();
    stream_.reset();
  }

  void Take(std::vector<broker::Delivery> deliveries) {
    demanded_ = false;
    if (stopped_) return;
    if (finished_) {
      std::vector<std::string> late;
      for (broker::Delivery& delivery : deliveries) late.push_back(std::move(delivery.ack_id));
      GiveBack(std::move(late));
      return;
    }
    for (broker::Delivery& delivery : deliveries) waiting_.push_back(std::move(delivery));
    Answer();
  }

  void Answer() {
    if (!pull_) return;
    if (waiting_.empty()) {
      if (draining_) {
        engine::SourceBatch batch;
        batch.finished = finished_ = true;
        std::exchange(pull_, std::nullopt)->done(std::move(batch));
      } else if (stream_ != nullptr && !demanded_) {
        demanded_ = true;
        stream_->Demand(pull_->max_bytes);
      }
      return;
    }
    engine::SourceBatch batch;
    size_t bytes = 0;
    while (!waiting_.empty() && batch.elements.size() < pull_->max_elements &&
           bytes < pull_->max_bytes) {
      bytes += waiting_.front().message.size();
      batch.elements.push_back(MakeElement(std::move(waiting_.front())));
      waiting_.pop_front();
    }
    std::exchange(pull_, std::nullopt)->done(std::move(batch));
  }

  engine::SourceElement MakeElement(broker::Delivery delivery) {
    engine::SourceElement element;
    const std::string_view wire = delivery.message.view();
    element.timestamp = settings_.timestamp_attribute.empty()
                            ? delivery.publish_time.micros / 1000
                            : EventTime(wire, settings_.timestamp_attribute, delivery.publish_time);
    element.dedup_id = DedupId(wire, settings_.id_attribute);
    const std::string_view value = settings_.with_attributes ? wire : DataOf(wire);
    std::string encoded;
    encoded.reserve(value.size() + 5);
    windowing::AppendBytes(encoded, value);
    element.value = SharedBytes(std::move(encoded));
    element.handle = leases_.Add(std::move(delivery.ack_id));
    return element;
  }

  void SendAck(std::shared_ptr<std::vector<std::string>> ids, Callback<void(Status)> done) {
    if (ids->empty()) {
      done(OkStatus());
      return;
    }
    environment_.broker->Acknowledge(settings_.subscription, std::move(*ids), std::move(done));
  }

  void GiveBack(std::vector<std::string> ids) {
    if (ids.empty()) return;
    environment_.broker->ModifyAckDeadline(settings_.subscription, std::move(ids), 0,
                                           [](Status) {});
  }

  void ScheduleExtension() {
    extension_ = environment_.timers->At(environment_.clock->SteadyNow() + kExtendEvery, executor_,
                                         [self = shared_from_this()] {
                                           if (self->stopped_) return;
                                           self->Extend();
                                           self->ScheduleExtension();
                                         });
  }

  void Extend() {
    std::vector<std::string> ids = leases_.All();
    for (const broker::Delivery& delivery : waiting_) ids.push_back(delivery.ack_id);
    if (ids.empty()) return;
    environment_.broker->ModifyAckDeadline(settings_.subscription, std::move(ids),
                                           kLease / std::chrono::seconds(1), [](Status status) {
                                             if (!status.ok()) {
                                               MR_LOG(kWarning, "extending leases: {}",
                                                      MessageOf(status));
                                             }
                                           });
  }

  // Tells the job, tries again in a while.
  void Trouble(const Status& status) {
    if (stopped_) return;
    report_(status);
    environment_.timers->At(environment_.clock->SteadyNow() + kRetry, executor_,
                            [self = shared_from_this()] {
                              if (self->stream_ == nullptr) self->Prepare();
                            });
  }

  ReadSettings settings_;
  const std::string own_subscription_;
  const SourceEnvironment environment_;
  const std::function<void(Status)> report_;
  SerialExecutor executor_;

  std::unique_ptr<broker::Stream> stream_;
  std::unique_ptr<broker::BacklogWatch> watch_;
  std::optional<PendingPull> pull_;
  std::deque<broker::Delivery> waiting_;
  LeaseKeeper leases_;
  TimerId extension_ = 0;
  bool demanded_ = false, draining_ = false, finished_ = false, stopped_ = false, checked_ = false;
};

// What the engine owns: the last reference outside of callbacks.
class SourceHandle : public engine::Source {
 public:
  explicit SourceHandle(std::shared_ptr<StreamSource> source) : source_(std::move(source)) {}
  ~SourceHandle() override { source_->Stop(); }
  void Pull(size_t max_elements, size_t max_bytes,
            Callback<void(engine::SourceBatch)> done) override {
    source_->Pull(max_elements, max_bytes, std::move(done));
  }
  void Ack(std::vector<uint64_t> handles, Callback<void(Status)> done) override {
    source_->Ack(std::move(handles), std::move(done));
  }
  void Release(std::vector<uint64_t> handles) override { source_->Release(std::move(handles)); }
  void Watermark(Callback<void(StatusOr<Millis>)> done) override {
    source_->Watermark(std::move(done));
  }
  void Drain() override { source_->Drain(); }
  void Stop() override { source_->Stop(); }

 private:
  const std::shared_ptr<StreamSource> source_;
};

}  // namespace

std::unique_ptr<engine::Source> MakePubSubSource(ReadSettings settings,
                                                 std::string own_subscription,
                                                 SourceEnvironment environment,
                                                 std::function<void(Status)> report) {
  auto source = std::make_shared<StreamSource>(std::move(settings), std::move(own_subscription),
                                               environment, std::move(report));
  source->Start();
  return std::make_unique<SourceHandle>(std::move(source));
}

int64_t SourceWatermark(const broker::BacklogInfo& backlog, const ReadSettings& settings) {
  const Millis now = backlog.now.micros / 1000;
  if (settings.timestamp_attribute.empty()) {
    if (!backlog.oldest_unacked_publish) return now;
    return std::min(now, backlog.oldest_unacked_publish->micros / 1000);
  }
  if (!backlog.event_times_known) return windowing::kMinTimestamp;
  Millis watermark = now - settings.band / std::chrono::milliseconds(1);
  if (backlog.min_event_ms_unacked) watermark = std::min(watermark, *backlog.min_event_ms_unacked);
  if (backlog.min_event_ms_in_band) watermark = std::min(watermark, *backlog.min_event_ms_in_band);
  return std::max(watermark, windowing::kMinTimestamp);
}

SubscriptionCheck CheckSubscription(const broker::pb::Subscription& subscription) {
  SubscriptionCheck check;
  if (!subscription.push_config().push_endpoint().empty()) {
    check.error = FailedPrecondition(fmt::format(
        "subscription {} pushes; a pipeline reads pull subscriptions only: make one of its own",
        subscription.name()));
  }
  auto warn = [&](bool bad, const char* what) {
    if (bad)
      check.warnings.push_back(fmt::format("subscription {}: {}", subscription.name(), what));
  };
  warn(subscription.has_retry_policy(),
       "its retry policy delays what the pipeline gives back; use immediate redelivery");
  warn(subscription.has_dead_letter_policy(),
       "its dead-letter topic counts the pipeline's own hand-backs as failures; write failures "
       "from inside the pipeline instead");
  warn(subscription.enable_exactly_once_delivery(),
       "exactly-once delivery adds nothing, the pipeline removes duplicates itself, and slows it "
       "down; switch it off");
  warn(subscription.enable_message_ordering(),
       "ordering is not kept by the pipeline; use timestamps and windows or state");
  return check;
}

}  // namespace millrace::connectors::pubsub
