// Resource names and the sentences about them (spec/pubsub 1.1, 2.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::pubsub {

inline constexpr std::string_view kDeletedTopic = "_deleted-topic_";

enum class ResourceKind { kTopic, kSubscription, kSnapshot, kSchema };

// projects/{project}/{collection}/{id}; the parts point into the name.
struct ResourceName {
  std::string_view project;
  std::string_view id;
};

StatusOr<ResourceName> ParseResourceName(std::string_view name, ResourceKind kind);
Status CheckResourceName(std::string_view name, ResourceKind kind);
// "projects/p": the answer is "projects/p/topics/" and the like, what all names of the project
// begin with.
StatusOr<std::string> ParseProject(std::string_view project, ResourceKind kind);

std::string MakeResourceName(std::string_view project, ResourceKind kind, std::string_view id);

Status InvalidResourceName(std::string_view name);
Status ResourceNotFound(std::string_view name);
Status ResourceExists(std::string_view name);

}  // namespace millrace::pubsub
