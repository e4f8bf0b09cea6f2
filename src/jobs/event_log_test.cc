#include "jobs/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::jobs {
namespace {

using engine::Importance;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr WallTime kNow{1'767'225'600'123'456};  // 2026-01-01

// What a reader that begins now is told.
std::vector<std::string> ReadAll(EventLog& log, bool* ended = nullptr) {
  std::vector<std::string> all;
  uint64_t position = 0;
  api::JobMessagesResponse event;
  bool end = false;
  while (log.Next(&position, &event, &end, [] {})) {
    all.push_back(event.has_state_response()
                      ? api::JobState::Enum_Name(event.state_response().state())
                      : event.message_response().message_text());
  }
  if (ended != nullptr) *ended = end;
  return all;
}

TEST(EventLogTest, EveryReaderSeesAll) {
  EventLog log;
  log.AddState(api::JobState::RUNNING, kNow);
  log.AddMessage(Importance::kWarning, "slow", kNow);
  log.AddState(api::JobState::DONE, kNow);
  bool ended = true;
  EXPECT_THAT(ReadAll(log, &ended), ElementsAre("RUNNING", "slow", "DONE"));
  EXPECT_FALSE(ended) << "not before Close";
  log.Close();
  EXPECT_THAT(ReadAll(log, &ended), ElementsAre("RUNNING", "slow", "DONE"));
  EXPECT_TRUE(ended);
  log.AddMessage(Importance::kError, "late", kNow);
  EXPECT_THAT(ReadAll(log), SizeIs(3)) << "nothing follows the end";
}

TEST(EventLogTest, WaitingReadersAreWokenOnce) {
  EventLog log;
  uint64_t position = 0;
  api::JobMessagesResponse event;
  bool ended = false;
  int woken = 0;
  EXPECT_FALSE(log.Next(&position, &event, &ended, [&] { ++woken; }));
  log.AddState(api::JobState::RUNNING, kNow);
  log.AddState(api::JobState::DONE, kNow);
  EXPECT_EQ(woken, 1);
  EXPECT_TRUE(log.Next(&position, &event, &ended, [] {}));
  EXPECT_TRUE(log.Next(&position, &event, &ended, [] {}));
  EXPECT_FALSE(log.Next(&position, &event, &ended, [&] { ++woken; }));
  log.Close();
  EXPECT_EQ(woken, 2);
}

TEST(EventLogTest, AReaderMayReadOnFromItsWake) {
  EventLog log;
  uint64_t position = 0;
  api::JobMessagesResponse event;
  bool ended = false, read = false;
  log.Next(&position, &event, &ended, [&] { read = log.Next(&position, &event, &ended, [] {}); });
  log.AddState(api::JobState::RUNNING, kNow);
  EXPECT_TRUE(read);
}

TEST(EventLogTest, KeepsTheNewestMessagesAndAllStates) {
  EventLog log;
  log.AddState(api::JobState::RUNNING, kNow);
  const int count = static_cast<int>(EventLog::kMessagesMax) + 5;
  for (int i = 0; i < count; ++i) log.AddMessage(Importance::kBasic, std::to_string(i), kNow);
  const std::vector<std::string> all = ReadAll(log);
  ASSERT_THAT(all, SizeIs(EventLog::kMessagesMax + 1));
  EXPECT_EQ(all[0], "RUNNING");
  EXPECT_EQ(all[1], "5");
  EXPECT_EQ(all.back(), std::to_string(count - 1));
}

TEST(EventLogTest, TellsStateErrorAndTimes) {
  EventLog log;
  EXPECT_EQ(log.LastError(), "");
  log.AddState(api::JobState::FAILED, kNow);
  log.AddMessage(Importance::kError, "first", kNow);
  log.AddMessage(Importance::kWarning, "no error", kNow);
  EXPECT_EQ(log.state(), api::JobState::FAILED);
  EXPECT_EQ(log.LastState().timestamp().seconds(), 1'767'225'600);
  EXPECT_EQ(log.LastState().timestamp().nanos(), 123'456'000);
  EXPECT_EQ(log.LastError(), "first");
  uint64_t position = 1;
  api::JobMessagesResponse event;
  bool ended = false;
  ASSERT_TRUE(log.Next(&position, &event, &ended, [] {}));
  EXPECT_EQ(event.message_response().time(), "2026-01-01T00:00:00.123Z");
  EXPECT_EQ(event.message_response().importance(), api::JobMessage::JOB_MESSAGE_ERROR);
  EXPECT_NE(event.message_response().message_id(), "");
}

}  // namespace
}  // namespace millrace::jobs
