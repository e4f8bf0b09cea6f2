// Sends a job's events to one gRPC client, from the first to the last.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "jobs/event_log.h"
#include "jobs/job_service.h"

namespace millrace::jobs {

// Owns itself until gRPC is done with it. `pick` turns an event into what this stream carries;
// false: leave it out.
template <typename Out>
class EventStream : public grpc::ServerWriteReactor<Out>,
                    public std::enable_shared_from_this<EventStream<Out>> {
 public:
  using Pick = std::function<bool(const api::JobMessagesResponse&, Out*)>;

  static std::shared_ptr<EventStream> Make(Pick pick) {
    std::shared_ptr<EventStream> stream(new EventStream(std::move(pick)));
    stream->self_ = stream;
    return stream;
  }

  void Follow(StatusOr<JobView> view) {
    if (!view.ok()) {
      End(ToGrpc(view.status()));
      return;
    }
    events_ = view->events;
    Advance();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      Advance();
    } else {
      End(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { self_.reset(); }

 private:
  explicit EventStream(Pick pick) : pick_(std::move(pick)) {}

  // Writes the next event there is, or waits for one. One write or one wait is under way at a time.
  void Advance() {
    std::weak_ptr<EventStream> weak = this->shared_from_this();
    while (true) {
      api::JobMessagesResponse event;
      bool ended = false;
      const bool found = events_->Next(&position_, &event, &ended, [weak] {
        if (auto self = weak.lock()) self->Advance();
      });
      if (!found) {
        if (ended) End(grpc::Status::OK);
        return;
      }
      Out out;
      if (!pick_(event, &out)) continue;
      MutexLock lock(mutex_);
      if (done_) return;
      out_ = std::move(out);
      this->StartWrite(&out_);
      return;
    }
  }

  void End(grpc::Status status) {
    MutexLock lock(mutex_);
    if (std::exchange(done_, true)) return;
    this->Finish(std::move(status));
  }

  const Pick pick_;
  std::shared_ptr<EventLog> events_;
  uint64_t position_ = 0;
  Out out_;
  Mutex mutex_;
  bool done_ MR_GUARDED_BY(mutex_) = false;
  std::shared_ptr<EventStream> self_;
};

}  // namespace millrace::jobs
