#include "api/streaming_pull_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"

namespace millrace::api {
namespace {

namespace pb = google::pubsub::v1;
using testing::ElementsAre;
using testing::HasSubstr;

StreamingPullRequest Parsed(const pb::StreamingPullRequest& request) {
  return *StreamingPullRequest::Parse(request.SerializeAsString());
}

TEST(StreamingPullRequest, ReadsWhatTheGeneratedClassWrites) {
  pb::StreamingPullRequest request;
  request.set_subscription("s");
  request.add_ack_ids("a");
  request.add_ack_ids("b");
  request.add_modify_deadline_seconds(0);
  request.add_modify_deadline_seconds(-1);
  request.add_modify_deadline_ack_ids("c");
  request.set_stream_ack_deadline_seconds(60);
  request.set_client_id("client");
  request.set_max_outstanding_messages(-5);
  request.set_max_outstanding_bytes(1'000'000'000'000);
  request.set_protocol_version(1);
  StreamingPullRequest read = Parsed(request);
  EXPECT_EQ(read.subscription, "s");
  EXPECT_THAT(read.ack_ids, ElementsAre("a", "b"));
  EXPECT_THAT(read.modify_deadline_seconds, ElementsAre(0, -1));
  EXPECT_THAT(read.modify_deadline_ack_ids, ElementsAre("c"));
  EXPECT_EQ(read.stream_ack_deadline_seconds, 60);
  EXPECT_EQ(read.client_id, "client");
  EXPECT_EQ(read.max_outstanding_messages, -5);
  EXPECT_EQ(read.max_outstanding_bytes, 1'000'000'000'000);
  EXPECT_EQ(read.protocol_version, 1);
  EXPECT_FALSE(read.empty);
  EXPECT_TRUE(Parsed({}).empty);
  EXPECT_FALSE(StreamingPullRequest::Parse("\x0a\x05xy").ok());
  // Not packed, as older writers do.
  EXPECT_THAT(StreamingPullRequest::Parse("\x18\x05\x18\x06")->modify_deadline_seconds,
              ElementsAre(5, 6));
}

TEST(StreamingPullRequest, FirstAndLaterRequestsHaveTheirRules) {
  pb::StreamingPullRequest request;
  EXPECT_THAT(Parsed(request).CheckFirst().ToString(), HasSubstr("field subscription"));
  request.set_subscription("s");
  EXPECT_THAT(Parsed(request).CheckFirst().ToString(), HasSubstr("stream_ack_deadline_seconds"));
  request.set_stream_ack_deadline_seconds(9);
  EXPECT_THAT(Parsed(request).CheckFirst().ToString(),
              HasSubstr("(ack_deadline=9). The ack deadline must be between 10 and 600 seconds."));
  request.set_stream_ack_deadline_seconds(10);
  EXPECT_TRUE(Parsed(request).CheckFirst().ok());
  EXPECT_THAT(Parsed(request).CheckLater().ToString(), HasSubstr("subscription"));

  pb::StreamingPullRequest later;
  EXPECT_TRUE(Parsed(later).CheckLater().ok());
  later.set_client_id("ignored");
  later.set_stream_ack_deadline_seconds(600);
  EXPECT_TRUE(Parsed(later).CheckLater().ok());
  later.set_protocol_version(1);
  EXPECT_THAT(Parsed(later).CheckLater().ToString(), HasSubstr("protocol_version"));
  later.clear_protocol_version();
  later.set_max_outstanding_bytes(-1);
  EXPECT_THAT(Parsed(later).CheckLater().ToString(), HasSubstr("max_outstanding_bytes"));
  later.clear_max_outstanding_bytes();
  later.add_modify_deadline_ack_ids("a");
  EXPECT_THAT(Parsed(later).CheckLater().ToString(), HasSubstr("same length"));
  later.add_modify_deadline_seconds(-1);
  EXPECT_THAT(Parsed(later).CheckLater().ToString(),
              HasSubstr("Invalid ack deadline given (ack_deadline=-1). The ack deadline must be "
                        "between 0 and 600 seconds."));
}

}  // namespace
}  // namespace millrace::api
