// Receives by StreamingPull and acks in the stream.
#pragma once

#include <grpcpp/alarm.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "checker.h"
#include "shared.h"
#include "wire.h"

namespace millrace::load {

class Puller {
 public:
  explicit Puller(Shared& s) : s_(s) {
    size_t n = std::min<size_t>(static_cast<size_t>(s.o.pull_threads), s.subs.size());
    for (size_t i = 0; i < n; i++) workers_.push_back(std::make_unique<Worker>(s, unique_));
    int ch = 1000;
    for (int i = 0; i < s.o.channels; i++) channels_.push_back(NewChannel(s.o, ch++));
    for (size_t i = 0; i < s.subs.size() * static_cast<size_t>(s.o.streams); i++) {
      auto st = std::make_unique<Stream>();
      st->sub = i % s.subs.size();
      st->stub = std::make_unique<grpc::GenericStub>(channels_[i % channels_.size()]);
      st->open_tag = {st.get(), Op::kOpen};
      st->read_tag = {st.get(), Op::kRead};
      st->write_tag = {st.get(), Op::kWrite};
      st->finish_tag = {st.get(), Op::kFinish};
      st->retry_tag = {st.get(), Op::kRetry};
      workers_[st->sub % n]->streams.push_back(std::move(st));
    }
  }
  void Start() {
    started_ = NowNs();
    for (auto& w : workers_) {
      w->thread = std::thread([this, w = w.get()] {
        for (auto& st : w->streams) Open(*w, *st);
        Work(*w);
      });
    }
  }
  uint64_t unique() const { return unique_.load(std::memory_order_relaxed); }
  uint64_t started() const { return started_; }

  // Waits until the pending acks are written (and confirmed, with exactly-once), then ends the
  // streams.
  void Stop() {
    closing_ = true;
    for (auto& w : workers_) w->thread.join();
  }
  ReceiveTotals totals() {
    ReceiveTotals t;
    for (auto& w : workers_) t.Merge(w->totals);
    return t;
  }
  uint64_t Lost() {
    uint64_t n = 0;
    for (size_t i = 0; i < s_.subs.size(); i++) n += workers_[i % workers_.size()]->checker.Lost(i);
    return n;
  }

 private:
  enum class Op { kOpen, kRead, kWrite, kFinish, kRetry };
  struct Stream;
  struct Tag {
    Stream* stream;
    Op op;
  };
  struct Stream {
    size_t sub;
    std::unique_ptr<grpc::GenericStub> stub;
    std::unique_ptr<grpc::ClientContext> ctx;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rw;
    grpc::ByteBuffer in;
    grpc::Status status;
    grpc::Alarm alarm;
    bool open = false, writing = false, reading = false, finishing = false, done = false,
         failed = false;
    std::string acks;  // encoded ack_ids fields that wait for the write in flight
    uint64_t ack_count = 0;
    std::deque<std::pair<uint64_t, uint64_t>> unconfirmed;  // (time, acks)
    Tag open_tag, read_tag, write_tag, finish_tag, retry_tag;
  };
  struct Worker {
    Worker(Shared& s, std::atomic<uint64_t>& unique) : checker(s, totals, unique) {}
    grpc::CompletionQueue cq;
    std::thread thread;
    std::vector<std::unique_ptr<Stream>> streams;
    ReceiveTotals totals;
    Checker checker;
  };

  void Open(Worker& w, Stream& st) {
    st.ctx = std::make_unique<grpc::ClientContext>();
    st.open = st.writing = st.reading = st.finishing = st.failed = false;
    st.acks.clear();
    st.ack_count = 0;
    st.unconfirmed.clear();
    st.rw = st.stub->PrepareCall(st.ctx.get(), "/google.pubsub.v1.Subscriber/StreamingPull", &w.cq);
    st.rw->StartCall(&st.open_tag);
  }

  void Write(Stream& st, std::string bytes) {
    grpc::Slice sl(bytes);
    grpc::ByteBuffer b(&sl, 1);
    st.writing = true;
    st.rw->Write(b, &st.write_tag);
  }

  void FlushAcks(Worker& w, Stream& st) {
    if (st.writing || st.failed || st.finishing || st.acks.empty()) return;
    w.totals.acks_sent += st.ack_count;
    if (s_.o.exactly_once) st.unconfirmed.emplace_back(NowNs(), st.ack_count);
    std::string out;
    out.swap(st.acks);
    st.ack_count = 0;
    Write(st, std::move(out));
  }

  void OnResponse(Worker& w, Stream& st, std::string_view bytes) {
    uint64_t now = NowNs();
    w.totals.responses++;
    wire::Reader r(bytes);
    while (r.Next()) {
      if (r.field() == 1 && r.type() == 2) {
        std::string_view ack_id, data;
        wire::Reader m(r.bytes());
        while (m.Next()) {
          if (m.field() == 1)
            ack_id = m.bytes();
          else if (m.field() == 2) {
            wire::Reader pm(m.bytes());
            while (pm.Next())
              if (pm.field() == 1) {
                data = pm.bytes();
                break;
              }
          }
        }
        w.checker.Message(st.sub, data, now);
        if (!s_.o.no_ack) {
          wire::PutBytes(st.acks, 2, ack_id);
          // Requests stay under the service's 512 KiB limit of a StreamingPull request.
          if (++st.ack_count >= 2000) FlushAcks(w, st);
        }
      } else if (r.field() == 5 && r.type() == 2) {
        wire::Reader c(r.bytes());
        uint64_t good = 0, bad = 0;
        while (c.Next()) (c.field() == 1 ? good : bad)++;
        w.totals.acks_confirmed += good;
        w.totals.acks_refused += bad;
        for (uint64_t n = good + bad; n && !st.unconfirmed.empty();) {
          auto& [t, count] = st.unconfirmed.front();
          uint64_t k = std::min(n, count);
          if (s_.InWindow(now)) w.totals.ack_latency.Add(now - t, k);
          n -= k;
          if ((count -= k) == 0) st.unconfirmed.pop_front();
        }
      }
    }
    if (!r.ok()) w.totals.bad++;
  }

  void Finish(Stream& st) {
    if (st.finishing) return;
    st.finishing = true;
    st.rw->Finish(&st.status, &st.finish_tag);
  }

  // Everything acked, and confirmed where acks are confirmed.
  bool Idle(const Worker& w) const {
    for (auto& st : w.streams) {
      bool waits = s_.o.exactly_once && !st->unconfirmed.empty();
      if (!st->done && !st->failed && (st->writing || !st->acks.empty() || waits)) return false;
    }
    return true;
  }

  void OnOpen(Stream& st, bool ok) {
    if (!ok) {
      st.failed = true;
      Finish(st);
      return;
    }
    st.open = true;
    std::string first;
    wire::PutBytes(first, 1, s_.subs[st.sub]);
    wire::PutInt(first, 5, static_cast<uint64_t>(s_.o.ack_deadline));
    wire::PutBytes(first, 6, "pubsub-load-" + std::to_string(s_.run));
    if (s_.o.max_outstanding > 0)
      wire::PutInt(first, 7, static_cast<uint64_t>(s_.o.max_outstanding));
    if (s_.o.max_outstanding_bytes > 0)
      wire::PutInt(first, 8, static_cast<uint64_t>(s_.o.max_outstanding_bytes));
    if (s_.o.exactly_once) wire::PutInt(first, 10, 1);
    Write(st, std::move(first));
    st.reading = true;
    st.rw->Read(&st.in, &st.read_tag);
  }

  void OnRead(Worker& w, Stream& st, bool ok) {
    st.reading = false;
    if (!ok) {
      st.failed = true;
      if (!st.writing) Finish(st);
      return;
    }
    grpc::Slice hold;
    Contiguous(st.in, hold);
    st.in.Clear();
    st.reading = true;
    st.rw->Read(&st.in, &st.read_tag);
    OnResponse(w, st, View(hold));
    FlushAcks(w, st);
  }

  void OnWrite(Worker& w, Stream& st, bool ok) {
    st.writing = false;
    if (!ok) st.failed = true;
    if (st.failed && !st.reading) {
      Finish(st);
    } else {
      FlushAcks(w, st);
    }
  }

  // True if the stream is over for good.
  bool OnFinish(Worker& w, Stream& st) {
    if (closing_) return st.done = true;
    w.totals.breaks++;
    if (w.totals.first_error.empty()) {
      w.totals.first_error =
          std::to_string(st.status.error_code()) + " " + st.status.error_message();
    }
    st.alarm.Set(&w.cq, InMs(50), &st.retry_tag);
    return false;
  }

  bool OnRetry(Worker& w, Stream& st) {
    if (closing_) return st.done = true;
    Open(w, st);
    return false;
  }

  void Work(Worker& w) {
    void* tag;
    bool ok;
    uint64_t close_at = 0;
    bool cancelled = false;
    size_t live = w.streams.size();
    while (live) {
      auto got = w.cq.AsyncNext(&tag, &ok, InMs(20));
      if (closing_ && !close_at) close_at = NowNs();
      if (close_at && !cancelled && (Idle(w) || NowNs() - close_at > 5000000000ull)) {
        cancelled = true;
        for (auto& st : w.streams)
          if (st->ctx) st->ctx->TryCancel();
      }
      if (got != grpc::CompletionQueue::GOT_EVENT) continue;
      Tag& t = *static_cast<Tag*>(tag);
      Stream& st = *t.stream;
      switch (t.op) {
        case Op::kOpen:
          OnOpen(st, ok);
          break;
        case Op::kRead:
          OnRead(w, st, ok);
          break;
        case Op::kWrite:
          OnWrite(w, st, ok);
          break;
        case Op::kFinish:
          live -= OnFinish(w, st);
          break;
        case Op::kRetry:
          live -= OnRetry(w, st);
          break;
      }
    }
    w.cq.Shutdown();
    while (w.cq.Next(&tag, &ok)) {
    }
  }

  Shared& s_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<uint64_t> unique_{0};
  std::atomic<bool> closing_{false};
  uint64_t started_ = 0;
};

}  // namespace millrace::load
