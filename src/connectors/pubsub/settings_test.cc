#include "connectors/pubsub/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "org/apache/beam/model/pipeline/v1/beam_runner_api.pb.h"

namespace millrace::connectors::pubsub {
namespace {

namespace pipe = org::apache::beam::model::pipeline::v1;

TEST(SettingsTest, NamesInBothForms) {
  EXPECT_EQ(*ResourceName("projects/p/topics/t", "topics"), "projects/p/topics/t");
  EXPECT_EQ(*ResourceName("/topics/p/t", "topics"), "projects/p/topics/t");
  EXPECT_EQ(*ResourceName("/subscriptions/p/s", "subscriptions"), "projects/p/subscriptions/s");
  for (const char* bad : {"", "t", "/topics/p", "/topics/p/", "/topics//t", "/subscriptions/p/s"})
    EXPECT_FALSE(ResourceName(bad, "topics").ok()) << bad;
}

TEST(SettingsTest, ReadNamesTopicOrSubscription) {
  pipe::PubSubReadPayload payload;
  EXPECT_FALSE(ParseReadSettings(payload.SerializeAsString()).ok());
  payload.set_subscription("/subscriptions/p/s");
  payload.set_id_attribute("id");
  payload.set_timestamp_attribute("ts");
  payload.set_with_attributes(true);
  StatusOr<ReadSettings> read = ParseReadSettings(payload.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->subscription, "projects/p/subscriptions/s");
  EXPECT_EQ(read->topic, "");
  EXPECT_EQ(read->id_attribute, "id");
  EXPECT_EQ(read->timestamp_attribute, "ts");
  EXPECT_TRUE(read->with_attributes);
  payload.set_topic("projects/p/topics/t");
  EXPECT_FALSE(ParseReadSettings(payload.SerializeAsString()).ok()) << "not both";
  EXPECT_FALSE(ParseReadSettings("\x0a\x7f").ok());
}

TEST(SettingsTest, WriteNeedsATopicUnlessElementsNameIt) {
  pipe::PubSubWritePayload payload;
  EXPECT_FALSE(ParseWriteSettings(payload.SerializeAsString(), false).ok());
  EXPECT_TRUE(ParseWriteSettings(payload.SerializeAsString(), true).ok());
  payload.set_topic("/topics/p/t");
  EXPECT_EQ(ParseWriteSettings(payload.SerializeAsString(), false)->topic, "projects/p/topics/t");
}

TEST(SettingsTest, Durations) {
  EXPECT_EQ(*ParseDuration("500ms"), std::chrono::milliseconds(500));
  EXPECT_EQ(*ParseDuration("10s"), std::chrono::seconds(10));
  EXPECT_EQ(*ParseDuration("2m"), std::chrono::minutes(2));
  EXPECT_EQ(*ParseDuration("0s"), Duration::zero());
  for (const char* bad : {"", "10", "s", "-1s", "1h", "1.5s", "10 s", "99999999999s"})
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
}

}  // namespace
}  // namespace millrace::connectors::pubsub
