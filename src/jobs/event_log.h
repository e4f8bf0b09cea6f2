// States and messages of one job, in order, with their readers: every reader, however late, sees
// all of them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/task.h"
#include "engine/job.h"
#include "jobs/types.h"

namespace millrace::jobs {

// Thread-safe (gRPC streams read it). Keeps all states and the newest kMessagesMax messages.
class EventLog {
 public:
  static constexpr size_t kMessagesMax = 1000;

  void AddState(State state, WallTime now);
  void AddMessage(engine::Importance importance, const std::string& text, WallTime now);
  // No more will come: readers end. For a job that has ended, or a server that stops.
  void Close();

  State state() const;
  api::JobStateEvent LastState() const;
  // The newest error message, empty if none.
  std::string LastError() const;

  // The next event at or after `*position`, which moves on. False: none now; then `wake` runs once
  // when there is (or at the end). `ended`: there never will be.
  bool Next(uint64_t* position, api::JobMessagesResponse* event, bool* ended, Task wake);

 private:
  void Add(api::JobMessagesResponse event);

  mutable Mutex mutex_;
  std::deque<std::pair<uint64_t, api::JobMessagesResponse>> events_ MR_GUARDED_BY(mutex_);
  uint64_t next_ MR_GUARDED_BY(mutex_) = 0;
  size_t messages_ MR_GUARDED_BY(mutex_) = 0;
  api::JobStateEvent state_ MR_GUARDED_BY(mutex_);
  std::string error_ MR_GUARDED_BY(mutex_);
  bool closed_ MR_GUARDED_BY(mutex_) = false;
  std::vector<Task> waiting_ MR_GUARDED_BY(mutex_);
};

}  // namespace millrace::jobs
