// The REST door: HTTP requests to methods of the table.
#pragma once

#include "api/method_table.h"
#include "api/transcoder.h"
#include "net/http_server.h"

namespace millrace::api {

// Handles the HTTP requests of the Pub/Sub port. Holds no thread while a call is under way; a
// client that goes away cancels its call. Thread-safe; outlives the HTTP server that calls it.
// Which routes exist comes from the descriptors (transcoder.h), what they do from the method table.
class RestRouter {
 public:
  // `table` outlives the router.
  explicit RestRouter(const MethodTable& table);
  void Handle(net::HttpRequest request, net::HttpResponder responder) const;

 private:
  const MethodTable& table_;
  Transcoder transcoder_;
};

}  // namespace millrace::api
