// Drains by unary Pull and Acknowledge.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checker.h"
#include "shared.h"
#include "wire.h"

namespace millrace::load {

// Unary Pull and Acknowledge in turn, `concurrency` such loops at once, until all is drained.
class UnaryAcker {
 public:
  explicit UnaryAcker(Shared& s) : s_(s), checker_(s, totals_, unique_) {}
  Histogram pull_latency, ack_latency;
  uint64_t pulls = 0, acked = 0, ack_calls = 0, errors = 0;
  std::string first_error;
  uint64_t begin = 0, end = 0;

  void Run(uint64_t expected, uint64_t deadline) {
    std::vector<std::unique_ptr<Slot>> slots;
    for (int i = 0; i < s_.o.concurrency; i++) {
      auto sl = std::make_unique<Slot>();
      sl->sub = static_cast<size_t>(i) % s_.subs.size();
      sl->stub = std::make_unique<grpc::GenericStub>(
          s_.channels[static_cast<size_t>(i) % s_.channels.size()]);
      slots.push_back(std::move(sl));
    }
    begin = NowNs();
    for (auto& sl : slots) Pull(*sl);
    size_t live = slots.size();
    void* tag;
    bool ok;
    while (live && cq_.Next(&tag, &ok)) {
      Slot& sl = *static_cast<Slot*>(tag);
      uint64_t now = NowNs();
      bool good = ok && sl.status.ok();
      if (!good) {
        errors++;
        if (first_error.empty())
          first_error = std::to_string(sl.status.error_code()) + " " + sl.status.error_message();
      }
      bool go_on = unique_ < expected && now < deadline;
      if (sl.acking) {
        if (good) {
          ack_latency.Add(now - sl.started);
          acked += sl.acks;
          ack_calls++;
          end = now;
        }
        if (go_on)
          Pull(sl);
        else
          live--;
        continue;
      }
      std::string request;
      sl.acks = 0;
      if (good) request = Take(sl, now);
      if (sl.acks)
        Call(sl, "/google.pubsub.v1.Subscriber/Acknowledge", request, true);
      else if (go_on)
        Pull(sl);
      else
        live--;
    }
    cq_.Shutdown();
    while (cq_.Next(&tag, &ok)) {
    }
  }
  ReceiveTotals& totals() { return totals_; }
  uint64_t Lost() {
    uint64_t n = 0;
    for (size_t i = 0; i < s_.subs.size(); i++) n += checker_.Lost(i);
    return n;
  }

 private:
  struct Slot {
    size_t sub = 0;
    std::unique_ptr<grpc::GenericStub> stub;
    std::unique_ptr<grpc::ClientContext> ctx;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> rpc;
    grpc::ByteBuffer response;
    grpc::Status status;
    bool acking = false;
    uint64_t started = 0, acks = 0;
  };
  // Counts what a pull brought; returns the request that acks it.
  std::string Take(Slot& sl, uint64_t now) {
    std::string request;
    pull_latency.Add(now - sl.started);
    pulls++;
    grpc::Slice hold;
    Contiguous(sl.response, hold);
    wire::PutBytes(request, 1, s_.subs[sl.sub]);
    for (wire::Reader r(View(hold)); r.Next();) {
      if (r.field() != 1) continue;
      std::string_view ack_id, data;
      for (wire::Reader m(r.bytes()); m.Next();) {
        if (m.field() == 1) {
          ack_id = m.bytes();
        } else if (m.field() == 2) {
          wire::Reader message(m.bytes());
          while (message.Next() && message.field() != 1) {
          }
          if (message.field() == 1) data = message.bytes();
        }
      }
      checker_.Message(sl.sub, data, now);
      wire::PutBytes(request, 2, ack_id);
      sl.acks++;
    }
    return request;
  }
  void Pull(Slot& sl) {
    std::string request;
    wire::PutBytes(request, 1, s_.subs[sl.sub]);
    wire::PutInt(request, 3, s_.o.batch);
    Call(sl, "/google.pubsub.v1.Subscriber/Pull", request, false);
  }
  void Call(Slot& sl, const char* method, const std::string& bytes, bool acking) {
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1);
    sl.acking = acking;
    sl.started = NowNs();
    sl.response.Clear();
    sl.ctx = std::make_unique<grpc::ClientContext>();
    sl.ctx->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    sl.rpc = sl.stub->PrepareUnaryCall(sl.ctx.get(), method, request, &cq_);
    sl.rpc->StartCall();
    sl.rpc->Finish(&sl.response, &sl.status, &sl);
  }
  Shared& s_;
  grpc::CompletionQueue cq_;
  ReceiveTotals totals_;
  std::atomic<uint64_t> unique_{0};
  Checker checker_;
};

}  // namespace millrace::load
