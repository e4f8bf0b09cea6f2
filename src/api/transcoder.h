// REST to protobuf and back, from the google.api.http annotations alone: no route is written by
// hand.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/path_template.h"
#include "base/status.h"

namespace google::api {
class HttpRule;
}

namespace millrace::api {

// An HTTP request translated into a call.
struct RestCall {
  const google::protobuf::MethodDescriptor* method = nullptr;
  std::unique_ptr<google::protobuf::Message> request;
};

// Parameters that every method of a Google REST API takes.
struct SystemParameters {
  bool pretty = true;             // prettyPrint
  bool protobuf = false;          // alt=proto: the answer as wire bytes
  bool enums_as_numbers = false;  // alt=json;enum-encoding=int
};

// Immutable after its routes have been added; any thread may use it. Calling methods, HTTP headers
// and the error envelope do not belong here.
class Transcoder {
 public:
  // The routes of every unary method of `service`.
  void Add(const google::protobuf::ServiceDescriptor& service);
  // A route that the service's published configuration has beyond its annotations.
  void Add(const google::protobuf::MethodDescriptor& method, const google::api::HttpRule& rule);

  // Empty: no method has this path. `target` is path and query, percent-encoded.
  std::optional<StatusOr<RestCall>> ToCall(std::string_view http_method, std::string_view target,
                                           std::string_view body) const;
  static SystemParameters ReadSystemParameters(std::string_view target);
  // Serialised response of that method as compact JSON.
  static StatusOr<std::string> ToJson(const google::protobuf::MethodDescriptor& method,
                                      std::string_view response, bool enums_as_numbers = false);

 private:
  struct Route {
    std::string http_method;
    PathTemplate path;
    const google::protobuf::MethodDescriptor* method;
    std::string body;  // "", "*" or a field's name
  };
  static StatusOr<RestCall> Translate(const Route& route, const PathBindings& bindings,
                                      std::string_view query, std::string_view body);

  std::vector<Route> routes_;
};

// JSON into a message by Google's rules; errors name the field and carry a BadRequest detail. `at`
// is the path of the message in the request, for those.
Status ParseJson(std::string_view json, std::string_view at, google::protobuf::Message* message);

}  // namespace millrace::api
