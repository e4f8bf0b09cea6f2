#include "pubsub/subscription/backlog.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kReadMin = 64 << 10;
constexpr size_t kMemoryReadMax = 1 << 20;
constexpr size_t kDiskRead = 1 << 20;
constexpr Duration kRetryRead = std::chrono::seconds(1);

}  // namespace

MessageFeed::MessageFeed(const ShardContext& context, Task ready,
                         Callback<void(const std::vector<StoredMessage>&)> seen)
    : context_(context), ready_(std::move(ready)), seen_(std::move(seen)) {}

MessageFeed::Answer MessageFeed::At(uint64_t offset, uint64_t end, size_t bytes,
                                    StoredMessage** message, uint64_t* gone_end) {
  while (true) {
    std::vector<StoredMessage>& have = now_.messages;
    while (position_ < have.size() && have[position_].offset < offset) Passed();
    if (position_ < have.size() && have[position_].offset == offset) {
      *message = &have[position_];
      if (now_.certain) MayReadAhead(end, bytes);
      return Answer::kReady;
    }
    if (now_.certain && offset >= now_.begin && offset < now_.end) {
      // (Below now_.begin a message may be missing because it was given out.)
      *gone_end = position_ < have.size() ? have[position_].offset : now_.end;
      return Answer::kGone;
    }
    if (!ahead_.certain) break;
    now_ = std::move(ahead_);
    ahead_ = {};
    position_ = 0;
  }
  if (reading_) return Answer::kReading;
  now_ = {std::move(now_.messages), offset, end, false};
  now_.messages.clear();
  position_ = 0;
  size_t wanted = std::clamp(bytes, kReadMin, kMemoryReadMax);
  if (context_.topic().TryRead(offset, end, wanted, &now_.messages)) {
    seen_(now_.messages);
    if (!now_.messages.empty() && now_.messages.front().offset == offset) {
      *message = &now_.messages.front();
      return Answer::kReady;
    }
    // Memory does not hold it: only the disk can say that it is gone.
    now_.messages.clear();
  }
  StartRead(offset, end, std::max(bytes, kDiskRead));
  return Answer::kReading;
}

void MessageFeed::Passed() { now_.begin = now_.messages[position_++].offset + 1; }

void MessageFeed::StartRead(uint64_t from, uint64_t end, size_t bytes) {
  reading_ = true;
  context_.topic().Read(from, end, bytes, context_.executor(),
                        context_.WhileAlive([this, generation = generation_, from, end,
                                             bytes](StatusOr<std::vector<StoredMessage>> messages) {
                          OnRead(generation, from, end, bytes, std::move(messages));
                        }));
}

void MessageFeed::OnRead(uint64_t generation, uint64_t from, uint64_t end, size_t bytes,
                         StatusOr<std::vector<StoredMessage>> messages) {
  if (generation != generation_) return;
  if (!messages.ok()) {
    MR_LOG(kError, "subscription {}: reading its topic from offset {} failed, trying again: {}",
           context_.environment.name, from, MessageOf(messages.status()));
    retry_ =
        context_.environment.timers->At(context_.SteadyNow() + kRetryRead, context_.executor(),
                                        context_.WhileAlive([this, generation, from, end, bytes] {
                                          if (generation == generation_)
                                            StartRead(from, end, bytes);
                                        }));
    return;
  }
  reading_ = false;
  ahead_.messages = *std::move(messages);
  ahead_.begin = from;
  // What lies past the last message may only have been cut off by the size.
  ahead_.end = ahead_.messages.empty() ? end : ahead_.messages.back().offset + 1;
  ahead_.certain = true;
  seen_(ahead_.messages);
  ready_();
}

// Reading from disk goes on while the second half is delivered.
void MessageFeed::MayReadAhead(uint64_t end, size_t bytes) {
  if (reading_ || ahead_.certain || position_ * 2 < now_.messages.size() || now_.end >= end) return;
  StartRead(now_.end, end, std::max(bytes, kDiskRead));
}

void MessageFeed::Clear() {
  context_.environment.timers->Cancel(std::exchange(retry_, 0));
  now_ = {};
  ahead_ = {};
  position_ = 0;
  reading_ = false;
  ++generation_;
}

}  // namespace millrace::pubsub
