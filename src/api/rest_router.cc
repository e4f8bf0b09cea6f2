#include "api/rest_router.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <utility>

#include "api/byte_buffer.h"
#include "api/errors.h"
#include "api/json_text.h"
#include "api/unsupported.h"
#include "base/mutex.h"
#include "google/api/http.pb.h"
#include "google/iam/v1/iam_policy.pb.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"

namespace millrace::api {
namespace {

using google::protobuf::MethodDescriptor;
using net::HttpRequest;
using net::HttpResponder;
using net::HttpResponse;

constexpr char kJson[] = "application/json; charset=UTF-8";

HttpResponse JsonResponse(int status, const std::string& compact, bool pretty) {
  HttpResponse response;
  response.status = status;
  response.content_type = kJson;
  response.body = pretty ? IndentJson(compact) : compact + "\n";
  return response;
}

HttpResponse ErrorResponse(const Status& status, bool pretty) {
  return JsonResponse(HttpCodeOf(status.code()), ErrorJson(status), pretty);
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// A path that no method has is answered by a page, not by the envelope: clients tell by it a wrong
// address from a missing resource.
HttpResponse NoSuchPath(std::string_view target) {
  HttpResponse response;
  response.status = 404;
  response.content_type = "text/html; charset=UTF-8";
  response.body = fmt::format(
      "<!DOCTYPE html>\n<html lang=en>\n<title>404 Not Found</title>\n<p><b>404.</b> The URL "
      "<code>{}</code> is not part of this API.\n</html>\n",
      EscapeHtml(target.substr(0, target.find('?'))));
  return response;
}

HttpResponse AnswerResponse(const MethodDescriptor& method, const Answer& answer,
                            const SystemParameters& parameters) {
  SharedBytes body = ToSharedBytes(answer.body);
  if (parameters.protobuf) {
    HttpResponse response;
    response.content_type = "application/x-protobuf";
    response.body = body.view();
    return response;
  }
  StatusOr<std::string> json = Transcoder::ToJson(method, body.view(), parameters.enums_as_numbers);
  return json.ok() ? JsonResponse(200, *json, parameters.pretty)
                   : ErrorResponse(json.status(), parameters.pretty);
}

// A call and the connection that waits for it; whichever of answer and cancellation is first wins.
struct PendingCall {
  Mutex mutex;
  std::optional<HttpResponder> responder MR_GUARDED_BY(mutex);
  std::shared_ptr<void> handle MR_GUARDED_BY(mutex);
};

// gcloud says here, in seconds, how long it waits.
Duration TimeLeft(const HttpRequest& request) {
  const std::string* header = request.Header("X-Server-Timeout");
  double seconds = 0;
  if (header == nullptr ||
      std::from_chars(header->data(), header->data() + header->size(), seconds).ec != std::errc() ||
      !(seconds > 0 && seconds < 1e6)) {
    return Duration::max();
  }
  return Duration(static_cast<int64_t>(seconds * 1e6));
}

void Run(const UnaryHandler& handler, const MethodDescriptor& method, SharedBytes bytes,
         const CallOptions& options, const SystemParameters& parameters, HttpResponder responder) {
  auto pending = std::make_shared<PendingCall>();
  // The responder keeps its task, and so the call, only until it is answered or dropped.
  responder.OnCancelled([pending] {
    std::optional<HttpResponder> dropped;
    std::shared_ptr<void> handle;
    MutexLock lock(pending->mutex);
    dropped.swap(pending->responder);
    handle.swap(pending->handle);
  });
  {
    MutexLock lock(pending->mutex);
    pending->responder.emplace(std::move(responder));
  }
  std::shared_ptr<void> handle =
      handler(std::move(bytes), options, [pending, &method, parameters](StatusOr<Answer> answer) {
        std::optional<HttpResponder> waiting;
        std::shared_ptr<void> over;
        {
          MutexLock lock(pending->mutex);
          waiting.swap(pending->responder);
          over.swap(pending->handle);
        }
        if (!waiting) {
          if (answer.ok() && answer->if_unsent) answer->if_unsent();
          return;
        }
        waiting->Send(answer.ok() ? AnswerResponse(method, *answer, parameters)
                                  : ErrorResponse(answer.status(), parameters.pretty));
      });
  MutexLock lock(pending->mutex);
  if (pending->responder) pending->handle.swap(handle);
}

// Routes that the services' published configuration has beyond the annotations of google.iam.v1.
void AddPolicyRoutes(Transcoder& transcoder) {
  const auto& service =
      *google::iam::v1::GetIamPolicyRequest::descriptor()->file()->FindServiceByName("IAMPolicy");
  google::api::HttpRule rule;
  rule.set_get("/v1/{resource=projects/*/topics/*}:getIamPolicy");
  for (const char* kind : {"subscriptions", "snapshots", "schemas"}) {
    rule.add_additional_bindings()->set_get(
        fmt::format("/v1/{{resource=projects/*/{}/*}}:getIamPolicy", kind));
  }
  transcoder.Add(*service.FindMethodByName("GetIamPolicy"), rule);
}

}  // namespace

RestRouter::RestRouter(const MethodTable& table) : table_(table) {
  using google::iam::v1::GetIamPolicyRequest;
  using google::pubsub::v1::Schema;
  using google::pubsub::v1::Topic;
  for (const auto* file : {Topic::descriptor()->file(), Schema::descriptor()->file(),
                           GetIamPolicyRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) transcoder_.Add(*file->service(i));
  }
  AddPolicyRoutes(transcoder_);
}

void RestRouter::Handle(HttpRequest request, HttpResponder responder) const {
  if (request.target == "/" && request.method == "GET") {
    HttpResponse alive;
    alive.content_type = "text/plain; charset=UTF-8";
    alive.body = "Ok\n";
    responder.Send(std::move(alive));
    return;
  }
  SystemParameters parameters = Transcoder::ReadSystemParameters(request.target);
  std::optional<StatusOr<RestCall>> call =
      transcoder_.ToCall(request.method, request.target, request.body.view());
  if (!call) {
    responder.Send(NoSuchPath(request.target));
    return;
  }
  if (!call->ok()) {
    responder.Send(ErrorResponse(call->status(), parameters.pretty));
    return;
  }
  const MethodDescriptor& method = *(*call)->method;
  const UnaryHandler* handler = table_.Find(method.full_name());
  if (handler == nullptr) {
    responder.Send(ErrorResponse(Unimplemented(UnsupportedText(method.name())), parameters.pretty));
    return;
  }
  CallOptions options;
  options.time_left = TimeLeft(request);
  Run(*handler, method, SharedBytes((*call)->request->SerializeAsString()), options, parameters,
      std::move(responder));
}

}  // namespace millrace::api
