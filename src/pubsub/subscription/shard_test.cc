// The shard as its users see it: pulls, streams, acks, leases, crashes, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/subscription_harness.h"

namespace millrace::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Harness = ::millrace::testing::SubscriptionHarness;
using Offsets = std::vector<uint64_t>;

Offsets Range(uint64_t first, uint64_t end) {
  Offsets offsets;
  for (uint64_t o = first; o < end; ++o) offsets.push_back(o);
  return offsets;
}

TEST(Pull, TakesWhatIsThereUpToItsMaximum) {
  Harness h;
  h.Publish(5);
  EXPECT_EQ(h.StartPull(3)->Offsets(), Range(0, 3));
  EXPECT_EQ(h.StartPull(100)->Offsets(), Range(3, 5));
  EXPECT_EQ(h.shard->GetFigures().outstanding, 5u);
}

TEST(Pull, WaitsForAMessageAndIsAnsweredEmptyAfterItsWait) {
  Harness h;
  auto first = h.StartPull(10), second = h.StartPull(10);
  EXPECT_FALSE(first->answer.has_value());
  h.Publish(1);
  EXPECT_EQ(first->Offsets(), Range(0, 1)) << "first come, first served";
  EXPECT_FALSE(second->answer.has_value());
  h.ModAck(Harness::Ids(**first->answer), 600);
  h.Advance(seconds(24));
  EXPECT_FALSE(second->answer.has_value());
  h.Advance(seconds(1));
  EXPECT_THAT(second->Offsets(), IsEmpty());
}

TEST(Pull, ImmediateOneDoesNotWait) {
  Harness h;
  EXPECT_THAT(h.StartPull(10, true)->Offsets(), IsEmpty());
  h.Publish(2);
  EXPECT_EQ(h.StartPull(10, true)->Offsets(), Range(0, 2));
  h.Publish(2);
  h.topic->EvictBelow(4);
  EXPECT_EQ(h.StartPull(10, true)->Offsets(), Range(2, 4)) << "it waits for the disk";
}

TEST(Pull, ACancelledOneTakesNothing) {
  Harness h;
  auto gone = h.StartPull(10), next = h.StartPull(10);
  gone->handle.reset();
  h.Publish(1);
  EXPECT_FALSE(gone->answer.has_value());
  EXPECT_EQ(next->Offsets(), Range(0, 1));
}

TEST(Pull, IsBoundedInMessagesAndBytes) {
  Harness h;
  h.Publish(1500);
  EXPECT_THAT(h.StartPull(5000)->Offsets(), SizeIs(1000));
  h.StartPull(1000);
  h.Publish(3, 6'000'000);
  EXPECT_THAT(h.StartPull(10)->Offsets(), SizeIs(1));
}

TEST(Stream, APublishWakesAWaitingStreamInTheSameTurn) {
  Harness h;
  auto c = h.Open();
  c.Demand();
  h.Run();
  h.topic->Publish("x");
  h.topic->Commit();
  EXPECT_EQ(h.pool().RunAll(), 1) << "one turn of the executor";
  EXPECT_THAT(c.end->TakeOffsets(), ElementsAre(0));
  h.Publish(1);
  EXPECT_THAT(c.end->TakeOffsets(), IsEmpty()) << "no demand, no answer";
  c.Demand();
  h.Run();
  EXPECT_THAT(c.end->TakeOffsets(), ElementsAre(1));
}

TEST(Stream, MessageCreditFreedByAUnaryAckIsUsedAtOnce) {
  Harness h;
  h.Publish(10);
  auto c = h.Open(3);
  c.Demand();
  h.Run();
  auto got = c.end->Take();
  ASSERT_THAT(got, SizeIs(3));
  c.Demand();
  h.Run();
  EXPECT_THAT(c.end->got, IsEmpty());
  h.Ack({got[0].ack_id});
  EXPECT_THAT(c.end->TakeOffsets(), ElementsAre(3)) << "in the call itself";
  c.Demand();
  h.ModAck({got[1].ack_id}, 0);
  EXPECT_THAT(c.end->TakeOffsets(), ElementsAre(1))
      << "a nack frees credit, and what came back goes first";
}

TEST(Stream, ByteCreditAndTheOneLargerMessage) {
  Harness h;
  for (size_t size : {60, 60, 500, 30}) h.topic->Publish(std::string(size, 'x'));
  auto c = h.Open(0, 100);
  c.Demand();
  h.Run();
  auto first = c.end->Take();
  ASSERT_THAT(first, SizeIs(1)) << "60 of 100 bytes, the next does not fit";
  c.Demand();
  h.Run();
  EXPECT_THAT(c.end->got, IsEmpty());
  c.stream->Acknowledge({first[0].ack_id});
  h.Run();
  auto second = c.end->Take();
  ASSERT_THAT(second, SizeIs(1));
  c.Demand();
  c.stream->Acknowledge({second[0].ack_id});
  h.Run();
  auto third = c.end->Take();
  ASSERT_THAT(third, SizeIs(1)) << "larger than the limit, but nothing is outstanding";
  EXPECT_EQ(third[0].offset, 2u);
  c.Demand();
  h.Run();
  EXPECT_THAT(c.end->got, IsEmpty());
}

TEST(Stream, OneThatDoesNotFitLetsOthersGoFirst) {
  Harness h;
  auto small = h.Open(0, 100), large = h.Open();
  h.Publish(1, 60);
  small.Demand();
  h.Run();
  EXPECT_THAT(small.end->Take(), SizeIs(1));
  small.Demand();
  h.Publish(1, 60);
  EXPECT_THAT(small.end->Take(), IsEmpty());
  large.Demand();
  h.Run();
  EXPECT_THAT(large.end->TakeOffsets(), ElementsAre(1));
  h.Publish(1, 30);
  EXPECT_THAT(small.end->TakeOffsets(), ElementsAre(2)) << "this one fits";
}

TEST(Stream, DemandBoundsAnAnswer) {
  Harness h;
  h.Publish(100, 100);
  auto c = h.Open();
  c.Demand(1000);
  h.Run();
  EXPECT_THAT(c.end->Take(), SizeIs(10));
  c.Demand(1);
  h.Run();
  EXPECT_THAT(c.end->Take(), SizeIs(1));
}

TEST(Stream, CloseGivesBackItsLeasesToTheNextStream) {
  Harness h;
  auto a = h.Open(), b = h.Open();
  h.Publish(3);
  a.Demand();
  h.Run();
  auto got = a.end->Take();
  ASSERT_THAT(got, SizeIs(3));
  b.Demand();
  h.Ack({got[1].ack_id});
  h.Run();
  a.stream->Close();
  h.Run();
  EXPECT_THAT(b.end->TakeOffsets(), ElementsAre(0, 2));
  b.Demand();
  h.Publish(1);
  EXPECT_THAT(b.end->TakeOffsets(), ElementsAre(3));
  EXPECT_EQ(h.shard->GetFigures().open_streams, 1u);
}

TEST(Stream, SessionsTakeTurns) {
  Harness h;
  std::vector<Harness::Consumer> consumers;
  for (int i = 0; i < 4; ++i) consumers.push_back(h.Open());
  for (int round = 0; round < 8; ++round) {
    for (auto& c : consumers) c.Demand();
    h.Run();
    h.Publish(100);
  }
  for (auto& c : consumers) {
    EXPECT_GE(c.end->got.size(), 150u);
    EXPECT_LE(c.end->got.size(), 250u);
  }
}

TEST(Stream, LearnsPropertiesAndItsEnd) {
  Harness h;
  auto c = h.Open();
  ASSERT_TRUE(c.end->properties.has_value());
  EXPECT_FALSE(c.end->properties->exactly_once_delivery);
  SubscriptionSettings settings;
  settings.properties.exactly_once_delivery = true;
  h.shard->UpdateSettings(settings);
  EXPECT_TRUE(c.end->properties->exactly_once_delivery);
  auto pull = h.StartPull(1);
  h.shard->End(NotFound("gone"));
  EXPECT_EQ(c.end->end->code(), StatusCode::kNotFound);
  EXPECT_EQ(pull->answer->status().code(), StatusCode::kNotFound);
  EXPECT_EQ(h.StartPull(1)->answer->status().code(), StatusCode::kNotFound);
  auto late = h.Open();
  EXPECT_TRUE(late.end->end.has_value());
  h.Publish(1);
  h.Advance(seconds(60));
  EXPECT_THAT(c.end->got, IsEmpty());
}

TEST(Ack, UnaryReplyWaitsUntilTheRecordIsDurable) {
  Harness h;
  h.Publish(3);
  auto got = **h.StartPull(3)->answer;
  auto answer = h.Ack({got[0].ack_id, got[1].ack_id});
  auto again = h.Ack({got[0].ack_id});
  h.RunWithoutCommit();
  EXPECT_FALSE(answer->has_value());
  EXPECT_FALSE(again->has_value()) << "the first ack is still pending";
  EXPECT_EQ(h.log.pending(), 1u) << "one record a turn";
  h.Run();
  EXPECT_TRUE((*answer)->ok());
  EXPECT_TRUE((*again)->ok());
  h.Crash();
  EXPECT_THAT(h.StartPull(10)->Offsets(), ElementsAre(2));
}

TEST(Ack, OneThatWasNotDurableComesBackAfterACrash) {
  Harness h;
  h.Publish(2);
  auto got = **h.StartPull(2)->answer;
  h.Ack({got[0].ack_id});
  h.RunWithoutCommit();
  h.Crash();
  EXPECT_THAT(h.StartPull(10)->Offsets(), ElementsAre(0, 1));
}

TEST(Ack, LateAcksTakeEffect) {
  Harness h;
  h.Publish(4);
  auto first = **h.StartPull(4)->answer;
  h.Advance(seconds(10));
  EXPECT_EQ(h.shard->GetFigures().expired_leases, 4u);
  h.Ack({first[0].ack_id});  // expired, not redelivered
  h.Run();
  auto second = **h.StartPull(2)->answer;
  EXPECT_EQ(second[0].offset, 1u);
  h.Ack({first[1].ack_id});  // redelivered meanwhile
  h.Run();
  EXPECT_EQ(h.shard->GetFigures().outstanding, 1u);
  EXPECT_TRUE((*h.Ack({second[0].ack_id})).has_value() == false);
  h.Crash();
  h.Ack({first[3].ack_id});  // of the boot before, not delivered since
  h.Run();
  EXPECT_THAT(h.StartPull(10)->Offsets(), ElementsAre(2));
  EXPECT_EQ(h.shard->GetFigures().backlog_messages, 1u);
  EXPECT_EQ(h.Query().bytes, 10u);
}

TEST(Ack, ForeignAndMalformedIdsAreOk) {
  Harness h;
  h.Publish(1);
  auto answer = h.Ack({"nonsense", FormatAckId({{8}, 0, 0, 1}, "0123456789abcdef")});
  h.Run();
  EXPECT_TRUE((*answer)->ok());
  EXPECT_EQ(h.shard->GetFigures().backlog_messages, 1u);
}

TEST(Lease, ExpiryRedeliversBeforeWhatIsNewInOrder) {
  Harness h;
  h.Publish(3);
  auto got = **h.StartPull(3)->answer;
  h.ModAck({got[0].ack_id}, 60);
  h.Publish(2);
  h.Advance(milliseconds(9990));
  EXPECT_EQ(h.shard->GetFigures().outstanding, 3u);
  h.Advance(milliseconds(10));
  EXPECT_EQ(h.shard->GetFigures().outstanding, 1u);
  EXPECT_EQ(h.StartPull(10)->Offsets(), (Offsets{1, 2, 3, 4}));
  h.Advance(seconds(10));
  EXPECT_EQ(h.StartPull(10)->Offsets(), (Offsets{1, 2, 3, 4}));
  h.Advance(seconds(40));
  EXPECT_EQ(h.StartPull(10)->Offsets(), Range(0, 5));
}

TEST(Lease, StreamDeadlineMayChangeInMidStream) {
  Harness h;
  auto c = h.Open(0, 0, seconds(20));
  h.Publish(1);
  c.stream->SetAckDeadline(seconds(600));
  c.Demand();
  h.Run();
  c.Demand();
  h.Advance(seconds(599));
  EXPECT_EQ(c.end->answers, 1);
  h.Advance(seconds(1));
  EXPECT_EQ(c.end->answers, 2);
}

TEST(Lease, AStaleNackOrExtensionDoesNothing) {
  Harness h;
  h.Publish(1);
  auto first = **h.StartPull(1)->answer;
  h.ModAck({first[0].ack_id}, 0);
  auto second = **h.StartPull(1)->answer;
  h.ModAck({first[0].ack_id}, 0);
  EXPECT_EQ(h.shard->GetFigures().outstanding, 1u);
  h.ModAck({first[0].ack_id}, 600);
  h.Advance(seconds(10));
  EXPECT_EQ(h.shard->GetFigures().outstanding, 0u);
  EXPECT_EQ(h.shard->GetFigures().nacked, 1u);
}

TEST(Lease, DeliveryPausesAtOneMillionOutstanding) {
  Harness h;
  for (int i = 0; i < 1'000'010; ++i) h.topic->Publish("");
  auto c = h.Open(0, 0, seconds(600));
  for (int i = 0; i < 120; ++i) {
    c.Demand();
    h.Run();
  }
  EXPECT_EQ(c.end->got.size(), 1'000'000u);
  h.Ack({c.end->got[5].ack_id});
  EXPECT_EQ(c.end->got.size(), 1'000'001u);
}

TEST(Backlog, ComesFromDiskAndSmallDemandsDoNotReadAgain) {
  Harness h;
  for (int i = 0; i < 10'000; ++i) h.topic->Publish(std::string(1000, 'x'));
  h.topic->EvictBelow(10'000);
  auto c = h.Open();
  for (int i = 0; i < 10'000; ++i) {
    c.Demand(1);
    h.Run();
  }
  EXPECT_EQ(c.end->TakeOffsets(), Range(0, 10'000));
  EXPECT_LE(h.topic->disk_reads, 13);
}

TEST(Backlog, WhatTheTopicLostCountsAsAcked) {
  Harness h;
  h.Publish(10);
  h.topic->EvictBelow(10);
  h.topic->LoseBelow(4);
  EXPECT_EQ(h.StartPull(100)->Offsets(), Range(4, 10));
  h.Run();
  h.Crash();
  EXPECT_EQ(h.shard->GetFigures().backlog_messages, 6u);
}

TEST(Backlog, WhatWasReadAheadIsDroppedWhenNobodyTakesIt) {
  Harness h;
  for (int i = 0; i < 10'000; ++i) h.topic->Publish(std::string(1000, 'x'));
  h.topic->EvictBelow(10'000);
  EXPECT_EQ(h.StartPull(10)->Offsets(), Range(0, 10));
  EXPECT_EQ(h.topic->disk_reads, 1);
  h.shard->Expire(h.clock.WallNow());
  h.Run();
  EXPECT_EQ(h.StartPull(10)->Offsets(), Range(10, 20));
  int reads = h.topic->disk_reads;
  h.shard->Expire(h.clock.WallNow());
  h.shard->Expire(h.clock.WallNow());
  EXPECT_EQ(h.StartPull(10)->Offsets(), Range(20, 30));
  EXPECT_GT(h.topic->disk_reads, reads);
}

TEST(Backlog, StartOffsetAndNeed) {
  Harness h({}, 5);
  h.Publish(10);
  EXPECT_EQ(h.shard->CountNeeded(0, 10), 5u);
  EXPECT_EQ(h.shard->CountNeeded(8, 4), 4u) << "what is not published yet is needed";
  auto got = **h.StartPull(100)->answer;
  EXPECT_EQ(got[0].offset, 5u);
  h.Ack({got[1].ack_id});
  EXPECT_EQ(h.shard->CountNeeded(5, 3), 2u);
}

TEST(Retention, ExpiresWhatIsOlderAndNothingElse) {
  SubscriptionSettings settings;
  settings.retention = std::chrono::minutes(10);
  Harness h(settings);
  h.Publish(70'000);
  h.Advance(std::chrono::minutes(5));
  h.Publish(10);
  auto held = **h.StartPull(5)->answer;
  h.Advance(std::chrono::minutes(5));
  h.shard->Expire(h.clock.WallNow());
  h.Run();
  EXPECT_EQ(h.shard->GetFigures().backlog_messages, 70'010u) << "exactly ten minutes is not older";
  h.Advance(seconds(1));
  h.topic->EvictBelow(70'000);
  h.shard->Expire(h.clock.WallNow());
  h.Run();
  EXPECT_EQ(h.shard->GetFigures().backlog_messages, 10u);
  EXPECT_EQ(h.Query().bytes, 100u);
  EXPECT_EQ(h.shard->GetFigures().outstanding, 0u);
  EXPECT_EQ(h.StartPull(100)->Offsets(), Range(70'000, 70'010));
  h.Crash();
  EXPECT_EQ(h.StartPull(100)->Offsets(), Range(70'000, 70'010));
}

TEST(Checkpoint, RowsAndTheRestOfTheRecordsGiveTheSameState) {
  Harness h;
  h.Publish(200'000);
  auto c = h.Open();
  std::vector<Delivery> got;
  while (got.size() < 150'000) {
    c.Demand(10'000);
    h.Run();
    for (auto& d : c.end->Take()) got.push_back(std::move(d));
  }
  std::vector<std::string> even, odd;
  for (auto& d : got) (d.offset % 2 ? odd : even).push_back(d.ack_id);
  h.Ack(even);
  h.Run();
  h.Checkpoint();
  h.log.DropDurable();
  h.Ack({odd.begin(), odd.begin() + 40'000});
  h.Run();
  h.Checkpoint();
  h.log.DropDurable();
  h.Ack({odd.begin() + 40'000, odd.begin() + 40'100});
  h.Run();
  BacklogInfo before = h.Query();
  h.Crash();
  BacklogInfo after = h.Query();
  EXPECT_EQ(before.messages, 200'000 - even.size() - 40'100);
  EXPECT_EQ(before.bytes, before.messages * 10);
  EXPECT_EQ(after.messages, before.messages);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.oldest_unacked_publish, before.oldest_unacked_publish);
  EXPECT_EQ((**h.StartPull(1)->answer)[0].offset, 80'201u);
  for (auto& [key, value] : h.rows) EXPECT_TRUE(key.starts_with(SubscriptionShard::RowPrefix({7})));
  EXPECT_LE(h.rows.size(), 5u);
}

TEST(Checkpoint, AShardThatEndedForAShutdownStillWritesItsRows) {
  Harness h;
  h.Publish(10);
  auto got = **h.StartPull(3)->answer;
  h.Ack(Harness::Ids(got));
  h.shard->End(Unavailable("shutting down"));
  h.Run();
  h.Checkpoint();
  h.log.DropDurable();
  h.Crash();
  EXPECT_EQ(h.StartPull(100)->Offsets(), Range(3, 10));
  auto before = h.rows;
  h.shard->End(NotFound("deleted"));
  h.Checkpoint();
  EXPECT_EQ(h.rows, before) << "the catalogue removes them";
}

}  // namespace
}  // namespace millrace::pubsub
