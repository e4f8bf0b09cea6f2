// Inside the HTTP server: the state that a request's responder and its connection share.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "base/task.h"
#include "net/http_message.h"

namespace millrace::net {

class HttpExchange;

// The thread that a connection lives on. Thread-safe.
class HttpThread {
 public:
  virtual ~HttpThread() = default;
  // False, and the task is dropped, once the thread has ended.
  virtual bool Post(Task task) = 0;
  virtual bool IsCurrent() const = 0;
};

// The connection that a request came by. On its thread only.
class HttpAnswerSink {
 public:
  virtual ~HttpAnswerSink() = default;
  // Sends the answer if `exchange` is still the request in hand.
  virtual void Answer(const HttpExchange* exchange, HttpResponse response) = 0;
};

// The first of Send, the responder's end and the client's leaving decides. Thread-safe, except that
// Gone belongs to the connection's thread. Knows nothing of HTTP.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpThread> thread, std::weak_ptr<HttpAnswerSink> sink)
      : thread_(std::move(thread)), sink_(std::move(sink)) {}

  bool sent();
  void Send(HttpResponse response);
  void OnCancelled(Task task);
  // The client went away. Runs the cancel task in the caller's stack.
  void Gone();

 private:
  const std::shared_ptr<HttpThread> thread_;
  const std::weak_ptr<HttpAnswerSink> sink_;
  Mutex mutex_;
  bool sent_ MR_GUARDED_BY(mutex_) = false;
  bool gone_ MR_GUARDED_BY(mutex_) = false;
  Task cancel_ MR_GUARDED_BY(mutex_);
};

}  // namespace millrace::net
