// Publishes flat out (closed loop) or at a rate (open loop), from templates with one copy a
// request.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "histogram.h"
#include "shared.h"
#include "wire.h"

namespace millrace::load {

class Publisher {
 public:
  Publisher(Shared& s, uint64_t limit) : s_(s), limit_(limit) {
    const Options& o = s.o;
    BuildTemplate();
    size_t n = std::min<size_t>(static_cast<size_t>(o.concurrency), s.lanes.size());
    for (int t = 0; t < o.pub_threads; t++) workers_.push_back(std::make_unique<Worker>());
    for (size_t i = 0; i < n; i++) {
      auto slot = std::make_unique<Slot>();
      slot->worker = workers_[i % workers_.size()].get();
      slot->stub =
          std::make_unique<grpc::GenericStub>(s.channels[i % static_cast<size_t>(o.channels)]);
      for (size_t l = i; l < s.lanes.size(); l += n)
        slot->lanes.push_back(static_cast<uint32_t>(l));
      slots_.push_back(std::move(slot));
    }
  }

  void Start() {
    stop_ = false;
    paced_ = s_.o.rate > 0 && limit_ == UINT64_MAX;
    if (paced_) {
      for (auto& sl : slots_) free_.push_back(sl.get());
      pacer_ = std::thread([this] { Pace(); });
    } else {
      for (auto& sl : slots_) {
        if (Reserve()) {
          in_flight_++;
          Send(*sl, 0);
        }
      }
    }
    for (auto& w : workers_) w->thread = std::thread([this, w = w.get()] { Work(*w); });
  }
  void Stop() {
    stop_ = true;
    Join();
  }
  // Waits for the limit to be reached, then for all that is in flight.
  void Join() {
    if (pacer_.joinable()) pacer_.join();
    while (in_flight_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (auto& w : workers_) w->cq.Shutdown();
    for (auto& w : workers_)
      if (w->thread.joinable()) w->thread.join();
  }

  struct Totals {
    uint64_t ok = 0, errors = 0, window_msgs = 0, window_reqs = 0, late = 0;
    std::string first_error;
    Histogram latency;
  };
  Totals totals() {
    Totals t;
    for (auto& w : workers_) {
      t.ok += w->ok;
      t.errors += w->errors;
      t.window_msgs += w->window_msgs;
      t.window_reqs += w->window_reqs;
      if (t.first_error.empty()) t.first_error = w->first_error;
      t.latency.Merge(w->latency);
    }
    t.late = late_;
    return t;
  }
  size_t slots() const { return slots_.size(); }

 private:
  struct Worker {
    grpc::CompletionQueue cq;
    std::thread thread;
    Histogram latency;
    uint64_t ok = 0, errors = 0, window_msgs = 0, window_reqs = 0;
    std::string first_error;
  };
  struct Slot {
    Worker* worker;
    std::unique_ptr<grpc::GenericStub> stub;
    std::vector<uint32_t> lanes;
    size_t next_lane = 0;
    uint32_t lane = 0;
    uint64_t first = 0, started = 0;
    std::unique_ptr<grpc::ClientContext> ctx;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> rpc;
    grpc::ByteBuffer response;
    grpc::Status status;
  };

  void BuildTemplate() {
    const Options& o = s_.o;
    std::mt19937_64 rng(42);
    for (size_t i = 0; i < o.batch; i++) {
      std::string data(o.message_size, '\0');
      for (size_t j = 0; j < data.size(); j++) {
        data[j] = o.payload == "text"
                      ? "{\"sensor\": 17, \"value\": 20.5, \"unit\": \"C\"} "[(j + i) % 44]
                      : static_cast<char>(rng());
      }
      std::string m;
      wire::PutBytes(m, 1, data);
      size_t data_at = m.size() - data.size();
      for (int a = 0; a < o.attributes; a++) {
        std::string entry;
        wire::PutBytes(entry, 1, "attribute" + std::to_string(a));
        wire::PutBytes(entry, 2, "value-" + std::to_string(i % 10));
        wire::PutBytes(m, 2, entry);
      }
      size_t key_at = 0;
      if (o.ordering_keys > 0) {
        wire::PutBytes(m, 5, s_.lanes[0].key);
        key_at = m.size() - s_.lanes[0].key.size();
      }
      size_t before = template_.size();
      wire::PutBytes(template_, 2, m);
      size_t start = template_.size() - m.size();
      if (i == 0) {
        data_off_ = start + data_at;
        key_off_ = start + key_at;
        stride_ = template_.size() - before;
      }
    }
    for (auto& t : s_.topics) {
      std::string h;
      wire::PutBytes(h, 1, t);
      heads_.push_back(h);
    }
  }

  // Takes the next request's worth off the limit; false once it is used up.
  bool Reserve() {
    if (limit_ == UINT64_MAX) return true;
    return reserved_.fetch_add(s_.o.batch) < limit_;
  }

  void Send(Slot& sl, uint64_t scheduled) {
    const Options& o = s_.o;
    sl.lane = sl.lanes[sl.next_lane];
    sl.next_lane = (sl.next_lane + 1) % sl.lanes.size();
    Lane& lane = s_.lanes[sl.lane];
    sl.first = lane.next;
    lane.next += o.batch;
    grpc_slice body = grpc_slice_malloc(template_.size());
    uint8_t* p = GRPC_SLICE_START_PTR(body);
    memcpy(p, template_.data(), template_.size());
    sl.started = scheduled ? scheduled : NowNs();
    PayloadHeader h{s_.run, sl.lane, sl.first, sl.started};
    for (size_t i = 0; i < o.batch; i++, h.seq++) {
      memcpy(p + data_off_ + i * stride_, &h, sizeof h);
      if (o.ordering_keys > 0) memcpy(p + key_off_ + i * stride_, lane.key.data(), lane.key.size());
    }
    grpc::Slice parts[2] = {grpc::Slice(heads_[static_cast<size_t>(lane.topic)]),
                            grpc::Slice(body, grpc::Slice::STEAL_REF)};
    grpc::ByteBuffer request(parts, 2);
    sl.ctx = std::make_unique<grpc::ClientContext>();
    sl.ctx->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    sl.response.Clear();
    sl.rpc = sl.stub->PrepareUnaryCall(sl.ctx.get(), "/google.pubsub.v1.Publisher/Publish", request,
                                       &sl.worker->cq);
    sl.rpc->StartCall();
    sl.rpc->Finish(&sl.response, &sl.status, &sl);
  }

  void Work(Worker& w) {
    void* tag;
    bool ok;
    while (w.cq.Next(&tag, &ok)) {
      Slot& sl = *static_cast<Slot*>(tag);
      uint64_t now = NowNs();
      bool good = ok && sl.status.ok();
      uint64_t ids = 0;
      if (good) {
        grpc::Slice hold;
        Contiguous(sl.response, hold);
        for (wire::Reader r(View(hold)); r.Next();) ids += r.field() == 1;
        good = ids == s_.o.batch;
      }
      if (good) {
        w.ok += ids;
        if (s_.InWindow(now)) {
          w.window_msgs += ids;
          w.window_reqs++;
          w.latency.Add(now - sl.started);
        }
      } else {
        w.errors++;
        if (w.first_error.empty())
          w.first_error = std::to_string(sl.status.error_code()) + " " + sl.status.error_message();
        s_.lanes[sl.lane].failed.emplace_back(sl.first, s_.o.batch);
        if (!stop_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (w.errors > 100000) stop_ = true;
      }
      if (paced_) {
        std::lock_guard lock(mu_);
        free_.push_back(&sl);
        in_flight_--;
      } else if (!stop_ && Reserve()) {
        Send(sl, 0);
      } else {
        in_flight_--;
      }
    }
  }

  // Starts requests on schedule; a message's time is the scheduled one, so that waiting for a slot
  // counts.
  void Pace() {
    double step = 1e9 * static_cast<double>(s_.o.batch) / s_.o.rate;
    uint64_t t0 = NowNs() + 1000000;
    for (uint64_t i = 0; !stop_; i++) {
      uint64_t due = t0 + static_cast<uint64_t>(static_cast<double>(i) * step);
      if (NowNs() < due) SleepUntilNs(due);
      Slot* sl = nullptr;
      while (!stop_) {
        {
          std::lock_guard lock(mu_);
          if (!free_.empty()) {
            sl = free_.front();
            free_.pop_front();
            in_flight_++;
          }
        }
        if (sl) break;
        late_++;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      if (sl) Send(*sl, due);
    }
  }

  Shared& s_;
  uint64_t limit_;
  std::string template_;
  size_t data_off_ = 0, key_off_ = 0, stride_ = 0;
  std::vector<std::string> heads_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<uint64_t> reserved_{0};
  std::atomic<int> in_flight_{0};
  std::atomic<bool> stop_{false};
  std::thread pacer_;
  bool paced_ = false;
  std::mutex mu_;
  std::deque<Slot*> free_;
  uint64_t late_ = 0;
};

}  // namespace millrace::load
