#include "pubsub/subscription/survey.h"

#include <algorithm>

#include "base/log.h"

namespace millrace::pubsub {
namespace {

constexpr size_t kPieceBytes = 1 << 20;  // read and looked at in one turn
constexpr Duration kRetryRead = std::chrono::seconds(1);

}  // namespace

void Survey::OnRead(const std::vector<StoredMessage>& messages) {
  for (const StoredMessage& message : messages) {
    uint64_t counted = state_.summaries.counted_end();
    if (message.offset < counted) continue;
    // A hole is fine where all is acked; otherwise the survey has to read what lies between.
    if (message.offset > counted && state_.blocks.NextUnacked(counted) < message.offset) break;
    CountOne(message);
  }
  if (!waiting_.empty()) Kick();
}

void Survey::CountOne(const StoredMessage& message) {
  bool acked = state_.blocks.IsAcked(message.offset);
  for (auto& times : state_.event_times) {
    if (Joined(*times)) times->Add(message, acked);
  }
  state_.summaries.Count(message, acked);
}

void Survey::SkipTo(uint64_t offset) {
  for (auto& times : state_.event_times) {
    if (Joined(*times)) times->SkipTo(offset);
  }
  state_.summaries.SkipTo(offset);
}

EventTimes& Survey::Register(const std::string& attribute, Duration band) {
  for (auto& times : state_.event_times) {
    if (times->attribute() != attribute) continue;
    times->WidenBand(band);
    return *times;
  }
  state_.event_times.push_back(
      std::make_unique<EventTimes>(attribute, band, state_.blocks.cursor()));
  wanted_end_ = std::max(wanted_end_, context_.topic().CommittedEnd());
  Kick();
  return *state_.event_times.back();
}

void Survey::Query(const std::optional<std::string>& attribute, Duration band,
                   Callback<void(StatusOr<BacklogInfo>)> done) {
  Waiting waiting;
  // The time first: whatever was stamped before it is committed by now and below the end read next.
  waiting.now = context_.topic().NoPublishBefore();
  waiting.end = context_.topic().CommittedEnd();
  waiting.band = band;
  if (attribute.has_value()) waiting.times = &Register(*attribute, band);
  waiting.done = std::move(done);
  wanted_end_ = std::max(wanted_end_, waiting.end);
  waiting_.push_back(std::move(waiting));
  if (!busy_) Step();
}

void Survey::CatchUp() {
  wanted_end_ = std::max(wanted_end_, context_.topic().CommittedEnd());
  Kick();
}

std::optional<WallTime> Survey::OldestKnown() const {
  uint64_t cursor = state_.blocks.cursor();
  if (cursor >= context_.topic().CommittedEnd()) return std::nullopt;
  if (oldest_.offset != cursor) {
    std::vector<StoredMessage> messages;
    if (!context_.topic().TryRead(cursor, cursor + 1, 1, &messages) || messages.empty()) {
      const BlockSummary* summary = state_.summaries.Find(cursor / AckBlocks::kBlock);
      if (summary == nullptr || summary->publish_min.micros == INT64_MAX) return std::nullopt;
      return summary->publish_min;
    }
    oldest_ = {cursor, messages.front().publish_time};
  }
  return oldest_.publish_time;
}

void Survey::End(const Status& status) {
  ended_ = true;
  context_.environment.timers->Cancel(retry_);
  for (Waiting& waiting : waiting_) waiting.done(status);
  waiting_.clear();
}

void Survey::Kick() {
  if (busy_ || ended_) return;
  busy_ = true;
  context_.executor().Post(context_.WhileAlive([this] {
    busy_ = false;
    Step();
  }));
}

void Survey::Step() {
  if (ended_ || busy_) return;
  AnswerReady();
  Work work = Choose();
  if (work.kind != Work::kNone) Read(work);
}

Survey::Work Survey::Choose() {
  Work work;
  for (auto& times : state_.event_times) {
    if (Joined(*times)) continue;
    work.times = times.get();
    if (times->looking_back()) {
      work.kind = Work::kLookBack;
      work.from = times->probe();
      work.end = work.from + 1;
      return work;
    }
    work.kind = Work::kScan;
    work.from = times->cursor();
    work.end = state_.summaries.counted_end();
    return work;
  }
  if (state_.summaries.counted_end() < wanted_end_) {
    work.kind = Work::kCount;
    work.from = state_.summaries.counted_end();
    work.end = std::max(wanted_end_, context_.topic().CommittedEnd());
    return work;
  }
  if (waiting_.empty() && !recounting_) return work;
  if (recounting_ || state_.summaries.HasStale()) {
    if (!recounting_) {
      recounting_ = true;
      uint64_t block = state_.summaries.FirstStale();
      recount_from_ = block * AckBlocks::kBlock;
      recount_end_ = state_.summaries.BeginRecount(block);
    }
    work.kind = Work::kRecount;
    work.from = state_.blocks.NextUnacked(recount_from_);
    work.end = recount_end_;
    return work;
  }
  for (Waiting& waiting : waiting_) {
    if (ChooseFor(waiting, &work)) return work;
  }
  return work;
}

bool Survey::ChooseFor(Waiting& waiting, Work* work) {
  if (waiting.times != nullptr && Joined(*waiting.times)) {
    if (auto part = waiting.times->NeedsReading()) {
      work->kind = Work::kRefine;
      work->times = waiting.times;
      work->part = *part;
      work->from = part->first;
      work->end = part->end;
      return true;
    }
  }
  uint64_t cursor = state_.blocks.cursor();
  if (waiting.oldest_read || cursor >= state_.summaries.counted_end() || oldest_.offset == cursor)
    return false;
  work->kind = Work::kOldest;
  work->from = cursor;
  work->end = cursor + 1;
  return true;
}

void Survey::Read(const Work& work) {
  busy_ = true;
  if (work.from >= work.end) {
    Done(work, {});
    return;
  }
  bool one = work.kind == Work::kOldest || work.kind == Work::kLookBack;
  size_t bytes = one ? 1 : kPieceBytes;
  std::vector<StoredMessage> messages;
  // An answer from memory that begins later than asked may have a hole: only the disk can say so.
  if (context_.topic().TryRead(work.from, work.end, bytes, &messages) && !messages.empty() &&
      messages.front().offset == work.from) {
    Done(work, messages);
    return;
  }
  context_.topic().Read(
      work.from, work.end, bytes, context_.executor(),
      context_.WhileAlive([this, work](StatusOr<std::vector<StoredMessage>> read) {
        if (ended_) return;
        if (read.ok()) return Done(work, *read);
        MR_LOG(kError,
               "subscription {}: counting its backlog from offset {} failed, trying again: {}",
               context_.environment.name, work.from, MessageOf(read.status()));
        retry_ =
            context_.environment.timers->At(context_.SteadyNow() + kRetryRead, context_.executor(),
                                            context_.WhileAlive([this, work] { Read(work); }));
      }));
}

// One piece a turn: deliveries and acks go in between.
void Survey::Done(const Work& work, const std::vector<StoredMessage>& messages) {
  uint64_t read_to = work.end;
  if (!messages.empty()) read_to = std::min(work.end, messages.back().offset + 1);
  switch (work.kind) {
    case Work::kNone:
      break;
    case Work::kLookBack:
      work.times->LookBack(messages.empty() ? nullptr : &messages.front(),
                           context_.environment.clock->WallNow());
      break;
    case Work::kScan:
      DoneScan(work, messages, read_to);
      break;
    case Work::kCount:
      for (const StoredMessage& message : messages) {
        if (message.offset >= state_.summaries.counted_end()) CountOne(message);
      }
      SkipTo(read_to);
      progressed_();
      break;
    case Work::kRecount:
      DoneRecount(messages, read_to);
      break;
    case Work::kRefine:
      work.times->Refine(work.part, read_to, messages, state_.blocks);
      break;
    case Work::kOldest:
      for (Waiting& waiting : waiting_) waiting.oldest_read = true;
      if (!messages.empty()) oldest_ = {messages.front().offset, messages.front().publish_time};
      break;
  }
  busy_ = false;
  AnswerReady();
  if (Choose().kind != Work::kNone) Kick();
}

void Survey::DoneScan(const Work& work, const std::vector<StoredMessage>& messages,
                      uint64_t read_to) {
  for (const StoredMessage& message : messages) {
    if (message.offset >= work.times->cursor()) {
      work.times->Add(message, state_.blocks.IsAcked(message.offset));
    }
  }
  work.times->SkipTo(read_to);
}

void Survey::DoneRecount(const std::vector<StoredMessage>& messages, uint64_t read_to) {
  for (const StoredMessage& message : messages) {
    if (message.offset >= recount_from_ && !state_.blocks.IsAcked(message.offset)) {
      state_.summaries.Recount(message.offset, message.wire.size());
    }
  }
  recount_from_ = read_to;
  state_.summaries.RecountedTo(read_to);
  if (recount_from_ < recount_end_) return;
  recounting_ = false;
  state_.summaries.EndRecount();
}

void Survey::AnswerReady() {
  for (size_t i = 0; i < waiting_.size();) {
    Waiting& waiting = waiting_[i];
    Work work;
    bool ready = state_.summaries.counted_end() >= waiting.end && !recounting_ &&
                 !state_.summaries.HasStale() && !ChooseFor(waiting, &work);
    if (!ready) {
      ++i;
      continue;
    }
    BacklogInfo info = InfoFor(waiting);
    auto done = std::move(waiting.done);
    waiting_.erase(waiting_.begin() + i);
    done(info);
  }
}

BacklogInfo Survey::InfoFor(const Waiting& waiting) {
  BacklogInfo info;
  uint64_t end = state_.summaries.counted_end();
  info.messages = state_.blocks.CountUnacked(state_.blocks.cursor(), end);
  info.bytes = state_.summaries.bytes();
  info.now = waiting.now;
  if (info.messages > 0 && oldest_.offset != UINT64_MAX)
    info.oldest_unacked_publish = oldest_.publish_time;
  if (waiting.times != nullptr && Joined(*waiting.times)) {
    info.event_times_known = true;
    info.min_event_ms_unacked = waiting.times->MinimumUnacked();
    info.min_event_ms_in_band = waiting.times->MinimumPublishedSince(waiting.now - waiting.band);
  }
  return info;
}

}  // namespace millrace::pubsub
