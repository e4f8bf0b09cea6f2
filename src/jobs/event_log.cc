#include "jobs/event_log.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "fmt/format.h"

namespace millrace::jobs {
namespace {

std::string TimeText(WallTime time) {
  const time_t seconds = time.micros / 1'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     time.micros / 1000 % 1000);
}

api::JobMessage::MessageImportance ToProto(engine::Importance importance) {
  switch (importance) {
    case engine::Importance::kDebug:
      return api::JobMessage::JOB_MESSAGE_DEBUG;
    case engine::Importance::kDetailed:
      return api::JobMessage::JOB_MESSAGE_DETAILED;
    case engine::Importance::kBasic:
      return api::JobMessage::JOB_MESSAGE_BASIC;
    case engine::Importance::kWarning:
      return api::JobMessage::JOB_MESSAGE_WARNING;
    case engine::Importance::kError:
      return api::JobMessage::JOB_MESSAGE_ERROR;
  }
  return api::JobMessage::JOB_MESSAGE_BASIC;
}

}  // namespace

void EventLog::AddState(State state, WallTime now) {
  api::JobMessagesResponse event;
  event.mutable_state_response()->set_state(state);
  event.mutable_state_response()->mutable_timestamp()->set_seconds(now.micros / 1'000'000);
  event.mutable_state_response()->mutable_timestamp()->set_nanos(now.micros % 1'000'000 * 1000);
  {
    MutexLock lock(mutex_);
    state_ = event.state_response();
  }
  Add(std::move(event));
}

void EventLog::AddMessage(engine::Importance importance, const std::string& text, WallTime now) {
  api::JobMessagesResponse event;
  api::JobMessage* message = event.mutable_message_response();
  message->set_time(TimeText(now));
  message->set_importance(ToProto(importance));
  message->set_message_text(text);
  Add(std::move(event));
}

void EventLog::Add(api::JobMessagesResponse event) {
  std::vector<Task> wake;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (event.has_message_response()) {
      event.mutable_message_response()->set_message_id(fmt::format("{}", next_));
      if (event.message_response().importance() == api::JobMessage::JOB_MESSAGE_ERROR) {
        error_ = event.message_response().message_text();
      }
      if (++messages_ > kMessagesMax) {
        auto oldest = std::ranges::find_if(
            events_, [](const auto& e) { return e.second.has_message_response(); });
        events_.erase(oldest);
        --messages_;
      }
    }
    events_.emplace_back(next_++, std::move(event));
    wake.swap(waiting_);
  }
  for (Task& task : wake) task();
}

void EventLog::Close() {
  std::vector<Task> wake;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    wake.swap(waiting_);
  }
  for (Task& task : wake) task();
}

State EventLog::state() const {
  MutexLock lock(mutex_);
  return state_.state();
}

api::JobStateEvent EventLog::LastState() const {
  MutexLock lock(mutex_);
  return state_;
}

std::string EventLog::LastError() const {
  MutexLock lock(mutex_);
  return error_;
}

bool EventLog::Next(uint64_t* position, api::JobMessagesResponse* event, bool* ended, Task wake) {
  MutexLock lock(mutex_);
  auto it = std::ranges::lower_bound(events_, *position, {}, [](const auto& e) { return e.first; });
  *ended = false;
  if (it != events_.end()) {
    *event = it->second;
    *position = it->first + 1;
    return true;
  }
  *ended = closed_;
  if (!closed_) waiting_.push_back(std::move(wake));
  return false;
}

}  // namespace millrace::jobs
