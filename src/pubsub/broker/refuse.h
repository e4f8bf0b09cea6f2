// A refusal, given off the caller's stack like every other answer.
#pragma once

#include <utility>

#include "base/executor.h"
#include "base/status.h"

namespace millrace::pubsub {

template <typename R>
void Refuse(Executor& executor, R reply, Status status) {
  executor.Post([reply = std::move(reply), status = std::move(status)]() mutable {
    reply(std::move(status));
  });
}

}  // namespace millrace::pubsub
