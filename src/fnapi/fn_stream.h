// One bidirectional stream that a harness opened: reads are handed over one by one, writes are
// queued.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace millrace::fnapi {

// Thread-safe. Keeps itself alive until gRPC is done with it. Writes are not bounded here: what is
// in flight is bounded by the bundles of a harness.
template <typename In, typename Out>
class FnStream : public grpc::ServerBidiReactor<In, Out>,
                 public std::enable_shared_from_this<FnStream<In, Out>> {
 public:
  // Called on gRPC threads, one at a time; must not block for long.
  struct Handler {
    std::function<void(In& message)> on_message;
    std::function<void()> on_closed;
  };

  static std::shared_ptr<FnStream> Make(Handler handler) {
    auto stream = std::shared_ptr<FnStream>(new FnStream(std::move(handler)));
    stream->self_ = stream;
    return stream;
  }

  // Begins reading; call it once, after whoever sends knows the stream.
  void Start() { this->StartRead(&in_); }

  // False if the stream is closed: nothing was sent.
  bool Send(Out message) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    out_.push_back(std::move(message));
    if (out_.size() == 1) this->StartWrite(&out_.front());
    return true;
  }

  void Close(grpc::Status status) {
    MutexLock lock(mutex_);
    CloseLocked(std::move(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(grpc::Status::OK);
      return;
    }
    handler_.on_message(in_);
    in_.Clear();
    this->StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    out_.pop_front();
    if (!ok) {
      CloseLocked(grpc::Status::OK);
    } else if (!out_.empty() && !closed_) {
      this->StartWrite(&out_.front());
    }
  }

  void OnCancel() override { Close(grpc::Status::CANCELLED); }

  void OnDone() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    if (handler_.on_closed) handler_.on_closed();
    handler_ = {};
    self_.reset();
  }

 private:
  explicit FnStream(Handler handler) : handler_(std::move(handler)) {}

  void CloseLocked(grpc::Status status) MR_REQUIRES(mutex_) {
    if (closed_) return;
    closed_ = true;
    this->Finish(std::move(status));
  }

  Handler handler_;
  In in_;
  Mutex mutex_;
  std::deque<Out> out_ MR_GUARDED_BY(mutex_);
  bool closed_ MR_GUARDED_BY(mutex_) = false;
  std::shared_ptr<FnStream> self_;
};

}  // namespace millrace::fnapi
