// Doubles for what stands around an engine job: harness, source, sink. Elements are windowed values
// of length-prefixed bytes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "engine/bundle_runner.h"
#include "engine/job.h"
#include "engine/sink.h"
#include "engine/source.h"
#include "windowing/wire.h"

namespace millrace::testing {

// One element, taken apart. For grouped input `values` are the values of the key.
struct FakeElement {
  windowing::Millis timestamp = 0;
  std::vector<windowing::Window> windows = {windowing::Window::Global()};
  windowing::Pane pane;
  std::string key;
  std::string value;
  std::vector<std::string> values;
};

enum class FakeCoder { kBytes, kKv, kGrouped };

inline std::string LengthPrefixed(std::string_view bytes) {
  std::string out;
  windowing::AppendBytes(out, bytes);
  return out;
}

inline std::string EncodeElement(const FakeElement& element, bool keyed) {
  std::string out;
  windowing::AppendHeader(out, element.timestamp, element.windows, element.pane);
  if (keyed) windowing::AppendBytes(out, element.key);
  windowing::AppendBytes(out, element.value);
  return out;
}

inline std::vector<FakeElement> DecodeElements(const std::vector<SharedBytes>& data,
                                               FakeCoder coder, windowing::WindowKind kind) {
  std::vector<FakeElement> elements;
  std::string all;
  for (const SharedBytes& piece : data) all.append(piece.view());
  std::string_view in = all;
  windowing::Header header;
  while (!in.empty()) {
    FakeElement element;
    std::string_view part;
    if (!windowing::ParseHeader(in, kind, &header)) break;
    element.timestamp = header.timestamp;
    element.windows.assign(header.windows.begin(), header.windows.end());
    element.pane = header.pane;
    if (coder != FakeCoder::kBytes && windowing::ParseBytes(in, &part))
      element.key = std::string(part);
    if (coder == FakeCoder::kGrouped) {
      uint32_t count = 0;
      windowing::ParseBigEndian32(in, &count);
      for (uint32_t i = 0; i < count && windowing::ParseBytes(in, &part); ++i)
        element.values.emplace_back(part);
    } else if (windowing::ParseBytes(in, &part)) {
      element.value = std::string(part);
    }
    elements.push_back(std::move(element));
  }
  return elements;
}

inline engine::Chunk MakeChunk(engine::CollectionId collection,
                               const std::vector<FakeElement>& elements, bool keyed) {
  std::string bytes;
  std::vector<size_t> ends;
  for (const FakeElement& element : elements) {
    bytes += EncodeElement(element, keyed);
    ends.push_back(bytes.size());
  }
  engine::Chunk chunk{collection, SharedBytes(std::move(bytes)), {}};
  size_t begin = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    engine::Element out;
    out.encoded = chunk.bytes.view().substr(begin, ends[i] - begin);
    const size_t value_size = LengthPrefixed(elements[i].value).size();
    const size_t key_size = keyed ? LengthPrefixed(elements[i].key).size() : 0;
    out.value = out.encoded.substr(out.encoded.size() - value_size - key_size);
    out.key = out.value.substr(0, key_size);
    out.kv_value = out.value.substr(key_size);
    out.timestamp = elements[i].timestamp;
    out.pane = elements[i].pane;
    out.windows = elements[i].windows;
    chunk.elements.push_back(std::move(out));
    begin = ends[i];
  }
  return chunk;
}

// Runs a function for each stage, when the test says so. Single-threaded tests only.
class FakeRunner : public engine::BundleRunner {
 public:
  using Function = std::function<engine::BundleResult(const engine::BundleRequest&)>;

  void Set(engine::StageId stage, Function function) {
    functions_[stage.value] = std::move(function);
  }
  void SetSlots(int slots) {
    slots_ = slots;
    if (changed_) changed_();
  }

  int Slots() const override { return slots_; }
  void OnSlotsChanged(Task changed) override { changed_ = std::move(changed); }
  void Run(engine::BundleRequest request, Callback<void(engine::BundleResult)> done) override {
    attempts.push_back(request.attempt);
    waiting_.emplace_back(std::move(request), std::move(done));
  }
  void Finalize(uint64_t attempt) override { finalized.push_back(attempt); }
  void Stop() override {
    for (auto& [request, done] : std::exchange(waiting_, {})) {
      engine::BundleResult result;
      result.status = Cancelled("stopped");
      done(std::move(result));
    }
  }

  size_t waiting() const { return waiting_.size(); }
  const engine::BundleRequest& request(size_t i) const { return waiting_[i].first; }
  // Answers one of the waiting bundles.
  bool RunOne(size_t i = 0) {
    if (i >= waiting_.size()) return false;
    auto [request, done] = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    ++runs;
    engine::BundleResult result = functions_.at(request.stage.value)(request);
    done(std::move(result));
    return true;
  }
  void Answer(size_t i, engine::BundleResult result) {
    auto [request, done] = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    done(std::move(result));
  }

  std::vector<uint64_t> attempts, finalized;
  uint64_t runs = 0;

 private:
  int slots_ = 3;
  Task changed_;
  std::map<uint32_t, Function> functions_;
  std::deque<std::pair<engine::BundleRequest, Callback<void(engine::BundleResult)>>> waiting_;
};

// The outside of a source: survives crashes of the job.
struct FakeTopic {
  struct Message {
    std::string id;
    std::string value;
    windowing::Millis timestamp = 0;
    bool acked = false;
  };
  std::vector<Message> messages;
  windowing::Millis watermark_limit =
      windowing::kMinTimestamp;  // no message published later is older
  bool lose_acks = false;

  void Publish(std::string id, std::string value, windowing::Millis timestamp) {
    messages.push_back({std::move(id), std::move(value), timestamp, false});
  }
  size_t unacked() const {
    size_t count = 0;
    for (const Message& message : messages) count += message.acked ? 0 : 1;
    return count;
  }
};

// Reads a FakeTopic: everything unacked, once each life. Answers and acks come by tasks on
// `executor`.
class FakeSource : public engine::Source {
 public:
  FakeSource(FakeTopic& topic, Executor& executor) : topic_(topic), executor_(executor) {
    live().insert(this);
  }
  ~FakeSource() override { live().erase(this); }

  void Pull(size_t max_elements, size_t, Callback<void(engine::SourceBatch)> done) override {
    pull_ = std::move(done);
    pull_max_ = max_elements;
    Answer();
  }
  void Ack(std::vector<uint64_t> handles, Callback<void(Status)> done) override {
    executor_.Post(
        [&topic = topic_, handles = std::move(handles), done = std::move(done)]() mutable {
          if (topic.lose_acks) {
            done(Unavailable("acks are lost"));
            return;
          }
          for (uint64_t handle : handles) topic.messages[handle].acked = true;
          done(OkStatus());
        });
  }
  void Release(std::vector<uint64_t> handles) override {
    released.insert(released.end(), handles.begin(), handles.end());
  }
  void Watermark(Callback<void(StatusOr<windowing::Millis>)> done) override {
    windowing::Millis watermark = topic_.watermark_limit;
    for (const FakeTopic::Message& message : topic_.messages) {
      if (!message.acked) watermark = std::min(watermark, message.timestamp);
    }
    executor_.Post([done = std::move(done), watermark]() mutable { done(watermark); });
  }
  void Drain() override {
    draining_ = true;
    Answer();
  }
  void Stop() override { pull_ = nullptr; }

  // After the test has published.
  void Answer() {
    if (!pull_) return;
    engine::SourceBatch batch;
    while (next_ < topic_.messages.size() && batch.elements.size() < pull_max_) {
      const FakeTopic::Message& message = topic_.messages[next_];
      if (!message.acked) {
        batch.elements.push_back(
            {message.id, SharedBytes(LengthPrefixed(message.value)), message.timestamp, next_});
      }
      ++next_;
    }
    batch.finished = draining_ && next_ == topic_.messages.size();
    if (batch.elements.empty() && !batch.finished) return;
    executor_.Post([done = std::exchange(pull_, nullptr), batch = std::move(batch)]() mutable {
      done(std::move(batch));
    });
  }
  static void AnswerAll() {
    for (FakeSource* source : live()) source->Answer();
  }

  std::vector<uint64_t> released;

 private:
  static std::set<FakeSource*>& live() {
    static std::set<FakeSource*> sources;
    return sources;
  }
  FakeTopic& topic_;
  Executor& executor_;
  Callback<void(engine::SourceBatch)> pull_;
  size_t pull_max_ = 0, next_ = 0;
  bool draining_ = false;
};

// The outside of a sink: keeps what each (producer, sequence) wrote first, as the broker does.
struct FakeOutput {
  std::map<std::pair<std::string, uint64_t>, std::vector<std::string>> writes;
  uint64_t repeated = 0, changed = 0;

  std::multiset<std::string> values() const {
    std::multiset<std::string> all;
    for (const auto& [name, list] : writes) all.insert(list.begin(), list.end());
    return all;
  }
};

class FakeSink : public engine::Sink {
 public:
  FakeSink(FakeOutput& output, Executor& executor) : output_(output), executor_(executor) {}
  void Write(const std::string& producer, uint64_t sequence,
             std::shared_ptr<const engine::Chunk> chunk, Callback<void(Status)> done) override {
    std::vector<std::string> values;
    for (const engine::Element& element : chunk->elements) {
      std::string_view in = element.value, part;
      windowing::ParseBytes(in, &part);
      values.emplace_back(part);
    }
    executor_.Post([this, name = std::make_pair(producer, sequence), values = std::move(values),
                    done = std::move(done)]() mutable {
      if (failures > 0) {
        --failures;
        done(Unavailable("the topic is gone"));
        return;
      }
      auto [it, fresh] = output_.writes.try_emplace(name, values);
      if (!fresh) ++output_.repeated;
      if (!fresh && it->second != values) ++output_.changed;
      done(OkStatus());
    });
  }
  void Stop() override {}
  int failures = 0;

 private:
  FakeOutput& output_;
  Executor& executor_;
};

struct FakeListener : public engine::JobListener {
  void OnFinished(Status status) override { finished = status; }
  void OnMessage(engine::Importance, std::string text) override {
    messages.push_back(std::move(text));
  }
  std::optional<Status> finished;
  std::vector<std::string> messages;
};

}  // namespace millrace::testing
