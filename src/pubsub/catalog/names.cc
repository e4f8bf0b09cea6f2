#include "pubsub/catalog/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::pubsub {
namespace {

constexpr size_t kIdBytesMin = 3;
constexpr size_t kIdBytesMax = 255;

std::string_view Collection(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kTopic:
      return "topics";
    case ResourceKind::kSubscription:
      return "subscriptions";
    case ResourceKind::kSnapshot:
      return "snapshots";
    case ResourceKind::kSchema:
      return "schemas";
  }
  return "";
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool IsIdCharacter(char c) {
  return IsLetter(c) || (c >= '0' && c <= '9') ||
         std::string_view("-_.~+%").find(c) != std::string_view::npos;
}

bool IsId(std::string_view id) {
  return id.size() >= kIdBytesMin && id.size() <= kIdBytesMax && IsLetter(id[0]) &&
         id.substr(0, 4) != "goog" && std::all_of(id.begin(), id.end(), IsIdCharacter);
}

std::string_view LastSegment(std::string_view name) {
  size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

// Takes "segment/" off the front.
bool TakeSegment(std::string_view* rest, std::string_view* segment) {
  size_t slash = rest->find('/');
  if (slash == std::string_view::npos) return false;
  *segment = rest->substr(0, slash);
  rest->remove_prefix(slash + 1);
  return true;
}

}  // namespace

Status InvalidResourceName(std::string_view name) {
  return InvalidArgument(fmt::format(
      "Invalid resource name given (name={}). Refer to "
      "https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names for more information.",
      name));
}

Status ResourceNotFound(std::string_view name) {
  return NotFound(fmt::format("Resource not found (resource={}).", LastSegment(name)));
}

Status ResourceExists(std::string_view name) {
  return AlreadyExists(
      fmt::format("Resource already exists in the project (resource={}).", LastSegment(name)));
}

StatusOr<ResourceName> ParseResourceName(std::string_view name, ResourceKind kind) {
  std::string_view rest = name, projects, collection;
  ResourceName parsed;
  if (!TakeSegment(&rest, &projects) || projects != "projects" ||
      !TakeSegment(&rest, &parsed.project) || parsed.project.empty() ||
      !TakeSegment(&rest, &collection) || collection != Collection(kind) || !IsId(rest)) {
    return InvalidResourceName(name);
  }
  parsed.id = rest;
  return parsed;
}

Status CheckResourceName(std::string_view name, ResourceKind kind) {
  return ParseResourceName(name, kind).status();
}

StatusOr<std::string> ParseProject(std::string_view project, ResourceKind kind) {
  std::string_view rest = project, projects;
  if (!TakeSegment(&rest, &projects) || projects != "projects" || rest.empty() ||
      rest.find('/') != std::string_view::npos) {
    return InvalidResourceName(project);
  }
  return fmt::format("{}/{}/", project, Collection(kind));
}

std::string MakeResourceName(std::string_view project, ResourceKind kind, std::string_view id) {
  return fmt::format("projects/{}/{}/{}", project, Collection(kind), id);
}

}  // namespace millrace::pubsub
