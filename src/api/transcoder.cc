#include "api/transcoder.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <map>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/json_text.h"
#include "base/log.h"
#include "google/api/annotations.pb.h"

namespace millrace::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

using QueryParameters = std::vector<std::pair<std::string, std::string>>;

// Parameters of the whole API, never fields of a request.
constexpr std::array<std::string_view, 10> kSystemParameters = {
    "alt",         "access_token", "callback",  "fields",     "key",
    "oauth_token", "prettyPrint",  "quotaUser", "uploadType", "upload_protocol"};

bool IsSystemParameter(std::string_view name) {
  return name.starts_with('$') || std::find(kSystemParameters.begin(), kSystemParameters.end(),
                                            name) != kSystemParameters.end();
}

QueryParameters ParseQuery(std::string_view query) {
  QueryParameters out;
  while (!query.empty()) {
    std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    size_t equals = pair.find('=');
    std::string_view value = equals == pair.npos ? std::string_view() : pair.substr(equals + 1);
    out.emplace_back(DecodePercent(pair.substr(0, equals), false, /*plus_is_space=*/true),
                     DecodePercent(value, false, /*plus_is_space=*/true));
  }
  return out;
}

std::string_view QueryOf(std::string_view target) {
  size_t mark = target.find('?');
  return mark == target.npos ? std::string_view() : target.substr(mark + 1);
}

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  if (field != nullptr) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

// Fields named by dotted paths, gathered into one JSON object; the JSON parser then knows how each
// type is written.
class FieldTree {
 public:
  // False: `type` has no such path.
  bool Add(const Descriptor& type, std::string_view path, const std::string& value) {
    size_t dot = path.find('.');
    const FieldDescriptor* field = FindField(type, std::string(path.substr(0, dot)));
    if (field == nullptr) return false;
    FieldTree& child = children_[field->name()];
    child.repeated_ = field->is_repeated();
    if (dot == path.npos) {
      child.values_.push_back(value);
      return true;
    }
    return field->message_type() != nullptr && !field->is_repeated() &&
           child.Add(*field->message_type(), path.substr(dot + 1), value);
  }
  bool empty() const { return children_.empty(); }
  std::string Json() const {
    if (!values_.empty() && !repeated_) return QuoteJson(values_.back());
    std::string out = repeated_ ? "[" : "{";
    for (const std::string& value : values_) {
      if (out.size() > 1) out += ',';
      out += QuoteJson(value);
    }
    for (const auto& [name, child] : children_) {
      if (out.size() > 1) out += ',';
      out += QuoteJson(name) + ":" + child.Json();
    }
    return out + (repeated_ ? "]" : "}");
  }

 private:
  std::map<std::string, FieldTree> children_;
  std::vector<std::string> values_;
  bool repeated_ = false;
};

std::string Join(std::string_view prefix, std::string_view path) {
  if (prefix.empty() || path.empty()) return std::string(prefix) + std::string(path);
  return fmt::format("{}.{}", prefix, path);
}

// The parser's error texts are "(PATH) NAME: Cannot find field." and
// "(PATH): invalid value VALUE for type TYPE"; the path is left out at the top.
Status JsonError(std::string_view text, std::string_view at) {
  std::string_view path;
  if (text.starts_with('(')) {
    size_t end = std::min(text.find(')'), text.size() - 1);
    path = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
  }
  std::string field = Join(at, path);
  constexpr std::string_view kUnknown = ": Cannot find field.";
  constexpr std::string_view kInvalid = ": invalid value ";
  constexpr std::string_view kForType = " for type ";
  if (text.ends_with(kUnknown)) {
    text.remove_suffix(kUnknown.size());
    if (text.starts_with(' ')) text.remove_prefix(1);
    std::string place = field.empty() ? "" : fmt::format(" at '{}'", field);
    return BadRequest(
        field,
        fmt::format("Invalid JSON payload received. Unknown name \"{}\"{}: Cannot find field.",
                    text, place));
  }
  size_t type_at = text.rfind(kForType);
  if (text.starts_with(kInvalid) && type_at != text.npos && type_at >= kInvalid.size()) {
    std::string_view type = text.substr(type_at + kForType.size());
    constexpr std::string_view kUrl = "type.googleapis.com/";
    if (type.starts_with(kUrl)) type.remove_prefix(kUrl.size());
    std::string_view value = text.substr(kInvalid.size(), type_at - kInvalid.size());
    bool base64 = type == "TYPE_BYTES" && value.starts_with('"');
    return BadRequest(field, fmt::format("Invalid value at '{}' ({}), {}{}", field, type,
                                         base64 ? "Base64 decoding failed for " : "", value));
  }
  if (text.starts_with(": ")) text.remove_prefix(2);
  return BadRequest(field, fmt::format("Invalid JSON payload received. {}", text));
}

// A field of `message` by its path as in a template ("topic.name").
Message* MutableField(Message* message, std::string_view path) {
  const FieldDescriptor* field = FindField(*message->GetDescriptor(), std::string(path));
  if (field == nullptr || field->message_type() == nullptr || field->is_repeated()) return nullptr;
  return message->GetReflection()->MutableMessage(message, field);
}

bool SetString(Message* message, std::string_view path, std::string value) {
  size_t dot = path.find('.');
  if (dot != path.npos) {
    Message* inner = MutableField(message, path.substr(0, dot));
    return inner != nullptr && SetString(inner, path.substr(dot + 1), std::move(value));
  }
  const FieldDescriptor* field = FindField(*message->GetDescriptor(), std::string(path));
  if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING ||
      field->is_repeated()) {
    return false;
  }
  message->GetReflection()->SetString(message, field, std::move(value));
  return true;
}

std::string_view PathOf(const google::api::HttpRule& rule, std::string* http_method) {
  switch (rule.pattern_case()) {
    case google::api::HttpRule::kGet:
      *http_method = "GET";
      return rule.get();
    case google::api::HttpRule::kPut:
      *http_method = "PUT";
      return rule.put();
    case google::api::HttpRule::kPost:
      *http_method = "POST";
      return rule.post();
    case google::api::HttpRule::kDelete:
      *http_method = "DELETE";
      return rule.delete_();
    case google::api::HttpRule::kPatch:
      *http_method = "PATCH";
      return rule.patch();
    default:
      return {};
  }
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

Status ParseJson(std::string_view json, std::string_view at, Message* message) {
  if (auto twice = FindRepeatedField(json, *message->GetDescriptor())) {
    std::string field = Join(at, *twice);
    return BadRequest(field,
                      fmt::format("Invalid JSON payload received. The field '{}' is given more "
                                  "than once.",
                                  field));
  }
  auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), message);
  if (status.ok()) return OkStatus();
  return JsonError({status.message().data(), status.message().size()}, at);
}

void Transcoder::Add(const google::protobuf::ServiceDescriptor& service) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    if (method.client_streaming() || method.server_streaming()) continue;
    if (method.options().HasExtension(google::api::http)) {
      Add(method, method.options().GetExtension(google::api::http));
    }
  }
}

void Transcoder::Add(const MethodDescriptor& method, const google::api::HttpRule& rule) {
  Route route;
  StatusOr<PathTemplate> path = PathTemplate::Parse(PathOf(rule, &route.http_method));
  MR_CHECK(path.ok());
  route.path = *std::move(path);
  route.method = &method;
  route.body = rule.body();
  routes_.push_back(std::move(route));
  for (const auto& more : rule.additional_bindings()) Add(method, more);
}

std::optional<StatusOr<RestCall>> Transcoder::ToCall(std::string_view http_method,
                                                     std::string_view target,
                                                     std::string_view body) const {
  RequestPath path(target.substr(0, target.find('?')));
  for (const Route& route : routes_) {
    if (route.http_method != http_method) continue;
    if (std::optional<PathBindings> bindings = route.path.Match(path)) {
      return Translate(route, *bindings, QueryOf(target), body);
    }
  }
  return std::nullopt;
}

StatusOr<RestCall> Transcoder::Translate(const Route& route, const PathBindings& bindings,
                                         std::string_view query, std::string_view body) {
  const Descriptor& type = *route.method->input_type();
  MessageFactory& factory = *MessageFactory::generated_factory();
  RestCall call{route.method, nullptr};
  call.request.reset(factory.GetPrototype(&type)->New());
  if (!route.body.empty() && !IsBlank(body)) {
    bool whole = route.body == "*";
    Message* into = whole ? call.request.get() : MutableField(call.request.get(), route.body);
    MR_CHECK(into != nullptr);
    MR_RETURN_IF_ERROR(ParseJson(body, whole ? "" : route.body, into));
  }
  FieldTree fields;
  for (const auto& [name, value] : ParseQuery(query)) {
    if (IsSystemParameter(name) || fields.Add(type, name, value)) continue;
    return BadRequest("", fmt::format("Invalid JSON payload received. Unknown name \"{0}\": Cannot "
                                      "bind query parameter. Field '{0}' could not be found in "
                                      "request message.",
                                      name));
  }
  if (!fields.empty()) {
    std::unique_ptr<Message> from_query(factory.GetPrototype(&type)->New());
    MR_RETURN_IF_ERROR(ParseJson(fields.Json(), "", from_query.get()));
    call.request->MergeFrom(*from_query);
  }
  for (const auto& [field, value] : bindings) {
    MR_CHECK(SetString(call.request.get(), field, value));
  }
  return call;
}

SystemParameters Transcoder::ReadSystemParameters(std::string_view target) {
  SystemParameters parameters;
  for (auto& [name, value] : ParseQuery(QueryOf(target))) {
    std::string_view plain = name;
    if (plain.starts_with('$')) plain.remove_prefix(1);
    if (plain == "prettyPrint" || plain == "pp") {
      parameters.pretty = value != "false" && value != "0";
    } else if (plain == "alt") {
      parameters.protobuf = value == "proto";
      parameters.enums_as_numbers = value.find("enum-encoding=int") != value.npos;
    }
  }
  return parameters;
}

StatusOr<std::string> Transcoder::ToJson(const MethodDescriptor& method, std::string_view response,
                                         bool enums_as_numbers) {
  std::unique_ptr<Message> message(
      MessageFactory::generated_factory()->GetPrototype(method.output_type())->New());
  if (!message->ParseFromArray(response.data(), static_cast<int>(response.size()))) {
    return Internal(fmt::format("The response of {} could not be read.", method.full_name()));
  }
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_enums_as_ints = enums_as_numbers;
  auto status = google::protobuf::util::MessageToJsonString(*message, &json, options);
  if (!status.ok()) {
    return Internal(fmt::format("The response of {} could not be printed as JSON: {}",
                                method.full_name(), status.ToString()));
  }
  return json;
}

}  // namespace millrace::api
