#include "net/http_exchange.h"

#include "net/http_server.h"

namespace millrace::net {

bool HttpExchange::sent() {
  MutexLock lock(mutex_);
  return sent_;
}

void HttpExchange::Send(HttpResponse response) {
  Task unused;  // destroyed after the lock is released
  {
    MutexLock lock(mutex_);
    if (sent_) return;
    sent_ = true;
    std::swap(unused, cancel_);
  }
  if (thread_->IsCurrent()) {
    if (auto sink = sink_.lock()) sink->Answer(this, std::move(response));
    return;
  }
  // The address only says which request is meant: the connection keeps its exchange until it is
  // answered, so no other one can have it.
  thread_->Post([sink = sink_, exchange = this, response = std::move(response)]() mutable {
    if (auto alive = sink.lock()) alive->Answer(exchange, std::move(response));
  });
}

void HttpExchange::OnCancelled(Task task) {
  {
    MutexLock lock(mutex_);
    if (sent_) return;
    if (!gone_) {
      std::swap(cancel_, task);
      return;
    }
  }
  thread_->Post(std::move(task));
}

void HttpExchange::Gone() {
  Task task;
  {
    MutexLock lock(mutex_);
    if (sent_ || gone_) return;
    gone_ = true;
    std::swap(task, cancel_);
  }
  if (task != nullptr) task();
}

HttpResponder::HttpResponder(std::shared_ptr<HttpExchange> exchange)
    : exchange_(std::move(exchange)) {}

HttpResponder& HttpResponder::operator=(HttpResponder&& other) noexcept {
  if (this != &other) {
    HttpResponder old(std::move(exchange_));
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}

HttpResponder::~HttpResponder() {
  if (exchange_ == nullptr || exchange_->sent()) return;
  exchange_->Send(HttpError(500, "INTERNAL", "The server gave no answer to this request."));
}

void HttpResponder::Send(HttpResponse response) {
  if (exchange_ != nullptr) exchange_->Send(std::move(response));
}

void HttpResponder::OnCancelled(Task task) {
  if (exchange_ != nullptr) exchange_->OnCancelled(std::move(task));
}

}  // namespace millrace::net
