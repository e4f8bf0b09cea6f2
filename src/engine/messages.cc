#include "engine/messages.h"

#include <fmt/format.h>

namespace millrace::engine {

void Messages::Tell(Importance importance, std::string text) {
  if (text.size() > kTextMax) {
    text.resize(kTextMax);
    text += " … (cut)";
  }
  const SteadyTime now = clock_.SteadyNow();
  if (told_.size() >= kDistinctMax) {
    std::erase_if(told_, [now](const auto& entry) { return entry.second.next <= now; });
    if (told_.size() >= kDistinctMax) told_.clear();
  }
  Told& told = told_[text];
  if (now < told.next) {
    ++told.left_out;
    return;
  }
  const uint64_t left_out = told.left_out;
  told = {now + std::chrono::minutes(1), 0};
  listener_.OnMessage(
      importance, left_out == 0
                      ? text
                      : fmt::format("{} ({} more of this in the minutes before)", text, left_out));
}

}  // namespace millrace::engine
