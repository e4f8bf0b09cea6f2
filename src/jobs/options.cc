#include "jobs/options.h"

#include <algorithm>
#include <charconv>

#include "connectors/pubsub/settings.h"
#include "fmt/format.h"

namespace millrace::jobs {
namespace {

using google::protobuf::Value;

const Value* Find(const google::protobuf::Struct& options, const std::string& name) {
  for (const std::string& key : {fmt::format("beam:option:{}:v1", name), name}) {
    auto it = options.fields().find(key);
    if (it != options.fields().end()) return &it->second;
  }
  return nullptr;
}

std::string Text(const Value* value) {
  if (value == nullptr) return "";
  switch (value->kind_case()) {
    case Value::kStringValue:
      return value->string_value();
    case Value::kNumberValue:
      return fmt::format("{}", value->number_value());
    case Value::kBoolValue:
      return value->bool_value() ? "true" : "false";
    default:
      return "";
  }
}

std::vector<std::string> Texts(const Value* value) {
  if (value == nullptr) return {};
  if (value->kind_case() != Value::kListValue) return {Text(value)};
  std::vector<std::string> texts;
  for (const Value& part : value->list_value().values()) texts.push_back(Text(&part));
  return texts;
}

// A whole number within bounds, or `otherwise`.
int Number(const std::string& text, int low, int high, int otherwise) {
  int number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < low || number > high) return otherwise;
  return number;
}

Status ReadServiceOption(const std::string& option, Options* result) {
  const size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (name == "timestamp_band") {
    MR_ASSIGN_OR_RETURN(result->timestamp_band, connectors::pubsub::ParseDuration(value));
  } else if (name == "bundle_retries") {
    result->bundle_attempts = Number(value, 1, 1000, 0);
    if (result->bundle_attempts == 0) {
      return InvalidArgument(fmt::format(
          "service option bundle_retries is \"{}\", must be a number from 1 to 1000", value));
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Options> ReadOptions(const google::protobuf::Struct& options,
                              const std::string& request_name) {
  Options result;
  result.job_name = Text(Find(options, "job_name"));
  if (result.job_name.empty()) result.job_name = request_name.empty() ? "job" : request_name;
  result.streaming = Text(Find(options, "streaming")) == "true";
  result.environment_type = Text(Find(options, "environment_type"));
  if (result.environment_type.empty())
    result.environment_type = Text(Find(options, "default_environment_type"));
  std::ranges::transform(result.environment_type, result.environment_type.begin(),
                         [](unsigned char c) { return std::toupper(c); });
  result.workers = Number(Text(Find(options, "sdk_worker_parallelism")), 1, 64, 1);
  for (const char* name : {"dataflow_service_options", "service_options"}) {
    for (const std::string& option : Texts(Find(options, name)))
      MR_RETURN_IF_ERROR(ReadServiceOption(option, &result));
  }
  return result;
}

}  // namespace millrace::jobs
