#include "connectors/pubsub/pubsub_sink.h"

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "connectors/pubsub/message_fields.h"
#include "fmt/format.h"
#include "windowing/wire.h"

namespace millrace::connectors::pubsub {
namespace {

// One publish call, within the limits of the service with room for what is added.
constexpr size_t kMessagesMax = 1000;
constexpr size_t kBytesMax = 9'000'000;
constexpr uint64_t kPartsMax = 1 << 20;  // of one chunk; sequence numbers leave room for them

struct Part {
  std::string topic;
  std::vector<SharedBytes> messages;
  size_t bytes = 0;
};

// Shared with the publishes in flight.
class BrokerSink : public std::enable_shared_from_this<BrokerSink> {
 public:
  BrokerSink(WriteSettings settings, millrace::pubsub::Broker* broker,
             std::function<void(Status)> report)
      : settings_(std::move(settings)), broker_(broker), report_(std::move(report)) {}

  void Write(const std::string& producer, uint64_t sequence,
             std::shared_ptr<const engine::Chunk> elements, Callback<void(Status)> done) {
    StatusOr<std::vector<Part>> parts = Split(producer, sequence, *elements);
    if (!parts.ok()) {
      report_(parts.status());
      done(parts.status());
      return;
    }
    auto work = std::make_shared<Work>(
        Work{producer, sequence * kPartsMax, *std::move(parts), 0, std::move(done)});
    Next(std::move(work));
  }

  void Stop() { stopped_ = true; }

 private:
  struct Work {
    std::string producer;
    uint64_t first_sequence;
    std::vector<Part> parts;
    size_t next;
    Callback<void(Status)> done;
  };

  // The same chunk is always split in the same way, so that a part keeps its number.
  StatusOr<std::vector<Part>> Split(const std::string& producer, uint64_t sequence,
                                    const engine::Chunk& chunk) const {
    std::vector<Part> parts;
    std::map<std::string, size_t> open;  // topic → its last part
    size_t index = 0;
    for (const engine::Element& element : chunk.elements) {
      std::string topic = settings_.topic;
      std::string_view rest = element.value, message;
      if (topic.empty()) {
        std::string_view name;
        if (!windowing::ParseBytes(rest, &name))
          return InvalidArgument("an element to write has no topic");
        MR_ASSIGN_OR_RETURN(topic, ResourceName(std::string(name), "topics"));
      }
      if (!windowing::ParseBytes(rest, &message))
        return InvalidArgument("an element to write is no PubsubMessage");
      std::string wire(message);
      if (!settings_.id_attribute.empty()) {
        AddAttribute(wire, settings_.id_attribute,
                     fmt::format("{}/{}/{}", producer, sequence, index));
      }
      if (!settings_.timestamp_attribute.empty()) {
        AddAttribute(wire, settings_.timestamp_attribute, std::to_string(element.timestamp));
      }
      auto [it, fresh] = open.try_emplace(topic, parts.size());
      if (!fresh && (parts[it->second].messages.size() >= kMessagesMax ||
                     parts[it->second].bytes + wire.size() > kBytesMax)) {
        fresh = true;
        it->second = parts.size();
      }
      if (fresh) parts.push_back({.topic = topic});
      Part& part = parts[it->second];
      part.bytes += wire.size();
      part.messages.push_back(SharedBytes(std::move(wire)));
      ++index;
    }
    return parts;
  }

  void Next(std::shared_ptr<Work> work) {
    if (stopped_) {
      work->done(Cancelled("the sink was stopped"));
      return;
    }
    if (work->next == work->parts.size()) {
      work->done(OkStatus());
      return;
    }
    const uint64_t sequence = work->first_sequence + work->next;
    Part& part = work->parts[work->next++];
    broker_->PublishOnce(
        part.topic, work->producer, sequence, std::move(part.messages),
        [self = shared_from_this(), work, topic = part.topic](Status status) mutable {
          if (status.ok()) {
            self->Next(std::move(work));
            return;
          }
          self->report_(MakeStatus(status.code(),
                                   fmt::format("publishing to {}: {}", topic, MessageOf(status))));
          work->done(std::move(status));
        });
  }

  const WriteSettings settings_;
  millrace::pubsub::Broker* const broker_;
  const std::function<void(Status)> report_;
  std::atomic<bool> stopped_ = false;
};

// What the engine owns.
class SinkHandle : public engine::Sink {
 public:
  explicit SinkHandle(std::shared_ptr<BrokerSink> sink) : sink_(std::move(sink)) {}
  ~SinkHandle() override { sink_->Stop(); }
  void Write(const std::string& producer, uint64_t sequence,
             std::shared_ptr<const engine::Chunk> elements, Callback<void(Status)> done) override {
    sink_->Write(producer, sequence, std::move(elements), std::move(done));
  }
  void Stop() override { sink_->Stop(); }

 private:
  const std::shared_ptr<BrokerSink> sink_;
};

}  // namespace

std::unique_ptr<engine::Sink> MakePubSubSink(WriteSettings settings,
                                             millrace::pubsub::Broker* broker,
                                             std::function<void(Status)> report) {
  return std::make_unique<SinkHandle>(
      std::make_shared<BrokerSink>(std::move(settings), broker, std::move(report)));
}

}  // namespace millrace::connectors::pubsub
