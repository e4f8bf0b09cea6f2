#include "pubsub/catalog/update_mask.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <string>

namespace millrace::pubsub {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Path = std::vector<const FieldDescriptor*>;

// Empty: no such path.
Path Resolve(const google::protobuf::Descriptor* type, std::string_view text) {
  Path path;
  while (true) {
    size_t dot = text.find('.');
    const FieldDescriptor* field = type->FindFieldByName(std::string(text.substr(0, dot)));
    if (field == nullptr) return {};
    path.push_back(field);
    if (dot == std::string_view::npos) return path;
    if (field->is_repeated() || field->message_type() == nullptr) return {};
    type = field->message_type();
    text.remove_prefix(dot + 1);
  }
}

void Apply(const Path& path, const Message& from, Message* to, size_t depth = 0) {
  const FieldDescriptor* field = path[depth];
  if (depth + 1 == path.size()) {
    std::unique_ptr<Message> copy(from.New());
    copy->CopyFrom(from);
    to->GetReflection()->SwapFields(to, copy.get(), {field});
    return;
  }
  bool given = from.GetReflection()->HasField(from, field);
  if (!given && !to->GetReflection()->HasField(*to, field)) return;
  Message* inner = to->GetReflection()->MutableMessage(to, field);
  Apply(path, from.GetReflection()->GetMessage(from, field), inner, depth + 1);
  // A message that lost its last field by a part that was not given is unset, not empty: the two
  // may differ in meaning.
  if (!given && inner->ByteSizeLong() == 0) to->GetReflection()->ClearField(to, field);
}

}  // namespace

Status ApplyUpdateMask(const MaskRules& rules, const google::protobuf::FieldMask& mask,
                       const Message& from, Message* to) {
  if (mask.paths().empty()) {
    return InvalidArgument(fmt::format(
        "The update_mask in the {} must be set, and must contain a non-empty paths list.",
        rules.request));
  }
  std::vector<Path> paths;
  for (const std::string& text : mask.paths()) {
    Path path = Resolve(to->GetDescriptor(), text);
    if (path.empty()) {
      return InvalidArgument(
          fmt::format("Invalid update_mask provided in the {}: {} is not a known {} field. Note "
                      "that field paths must be of "
                      "the form 'push_config' rather than 'pushConfig'.",
                      rules.request, text, rules.resource));
    }
    const std::string& first = path[0]->name();
    if (std::find(rules.immutable.begin(), rules.immutable.end(), first) != rules.immutable.end()) {
      return InvalidArgument(fmt::format(
          "Invalid update_mask provided in the {}: the '{}' field in the {} is not mutable.",
          rules.request, first, rules.resource));
    }
    paths.push_back(std::move(path));
  }
  for (const Path& path : paths) Apply(path, from, to);
  return OkStatus();
}

}  // namespace millrace::pubsub
