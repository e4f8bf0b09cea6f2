// Topics and subscriptions as callers see them, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/virtual_broker.h"

namespace millrace::pubsub {
namespace {

using ::testing::ElementsAre;

constexpr char kTopic[] = "projects/p/topics/t-1";
constexpr char kSubscription[] = "projects/p/subscriptions/s-1";

std::string TextOf(const Status& status) { return std::string(MessageOf(status)); }

StatusOr<pb::Subscription> Update(VirtualBroker& broker, const pb::Subscription& subscription,
                                  const std::vector<std::string>& paths) {
  pb::UpdateSubscriptionRequest request;
  *request.mutable_subscription() = subscription;
  for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
  return broker.Get<pb::Subscription>(
      [&](auto reply) { broker->UpdateSubscription(request, std::move(reply)); });
}

StatusOr<pb::Topic> GetTopic(VirtualBroker& broker, const std::string& name) {
  return broker.Get<pb::Topic>([&](auto reply) { broker->GetTopic(name, std::move(reply)); });
}

StatusOr<pb::Subscription> GetSubscription(VirtualBroker& broker, const std::string& name) {
  return broker.Get<pb::Subscription>(
      [&](auto reply) { broker->GetSubscription(name, std::move(reply)); });
}

Status DeleteTopic(VirtualBroker& broker, const std::string& name) {
  return broker.Do([&](auto reply) { broker->DeleteTopic(name, std::move(reply)); });
}

Status DeleteSubscription(VirtualBroker& broker, const std::string& name) {
  return broker.Do([&](auto reply) { broker->DeleteSubscription(name, std::move(reply)); });
}

TEST(AdminTest, CreateGetDeleteTopic) {
  VirtualBroker broker;
  auto created = broker.CreateTopic(kTopic);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->ShortDebugString(), "name: \"projects/p/topics/t-1\"");
  EXPECT_EQ(broker.CreateTopic(kTopic).status(),
            AlreadyExists("Resource already exists in the project (resource=t-1)."));
  EXPECT_TRUE(GetTopic(broker, kTopic).ok());
  EXPECT_EQ(GetTopic(broker, "projects/q/topics/t-1").status(),
            NotFound("Resource not found (resource=t-1)."));
  EXPECT_TRUE(DeleteTopic(broker, kTopic).ok());
  EXPECT_EQ(DeleteTopic(broker, kTopic), NotFound("Resource not found (resource=t-1)."));
  EXPECT_EQ(broker.Publish(kTopic, {"x"}).status(), NotFound("Resource not found (resource=t-1)."));
}

TEST(AdminTest, NamesAreChecked) {
  VirtualBroker broker;
  for (std::string id : {"ab", "goog-probe", "1-leading-digit", "bad$character", "", "a/b"}) {
    std::string name = "projects/p/topics/" + id;
    EXPECT_EQ(broker.CreateTopic(name).status(),
              InvalidArgument(
                  "Invalid resource name given (name=" + name +
                  "). Refer to https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names "
                  "for more "
                  "information."));
  }
  EXPECT_TRUE(broker.CreateTopic("projects/p/topics/aB3-_.~+%").ok());
  EXPECT_TRUE(broker.CreateTopic("projects/p/topics/" + std::string(255, 'a')).ok());
  EXPECT_FALSE(broker.CreateTopic("projects/p/topics/" + std::string(256, 'a')).ok());
  EXPECT_FALSE(broker.CreateTopic("projects//topics/abc").ok());
  EXPECT_FALSE(broker.CreateTopic("projects/p/subscriptions/abc").ok());
}

TEST(AdminTest, SubscriptionAnswersShowAllDefaults) {
  VirtualBroker broker;
  EXPECT_EQ(broker.CreateSubscription(kSubscription, kTopic).status(),
            NotFound("Resource not found (resource=t-1)."));
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  auto created = broker.CreateSubscription(kSubscription, kTopic);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(created->has_push_config());
  EXPECT_EQ(created->ack_deadline_seconds(), 10);
  EXPECT_EQ(created->message_retention_duration().seconds(), 604800);
  EXPECT_EQ(created->expiration_policy().ttl().seconds(), 2678400);
  EXPECT_EQ(created->state(), pb::Subscription::ACTIVE);
  EXPECT_EQ(GetSubscription(broker, kSubscription)->DebugString(), created->DebugString());
  EXPECT_EQ(broker.CreateSubscription(kSubscription, kTopic).status(),
            AlreadyExists("Resource already exists in the project (resource=s-1)."));
  // The server gives a name if the caller does not.
  auto named = broker.CreateSubscription("", kTopic);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->name().substr(0, 25), "projects/p/subscriptions/");
}

TEST(AdminTest, SubscriptionValuesHaveTheTextsOfTheService) {
  VirtualBroker broker;
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  pb::Subscription plain;
  plain.set_name(kSubscription);
  plain.set_topic(kTopic);
  pb::Subscription subscription = plain;
  subscription.set_ack_deadline_seconds(9);
  EXPECT_EQ(TextOf(broker.CreateSubscription(subscription).status()),
            "Invalid ack deadline given (ack_deadline=9). The ack deadline must be between 10 and "
            "600 seconds.");
  subscription = plain;
  subscription.mutable_message_retention_duration()->set_seconds(599);
  EXPECT_EQ(TextOf(broker.CreateSubscription(subscription).status()),
            "The value for message retention duration is out of bounds. You passed 9m59s in the "
            "request, but the value "
            "must be between 10m and 744h.");
  subscription = plain;
  subscription.mutable_expiration_policy()->mutable_ttl()->set_seconds(3600);
  EXPECT_EQ(TextOf(broker.CreateSubscription(subscription).status()),
            "The value for expiration duration is too small. You passed 1h in the request, but the "
            "minimum value is 24h.");
  subscription = plain;
  (*subscription.mutable_labels())["Upper"] = "x";
  EXPECT_EQ(TextOf(broker.CreateSubscription(subscription).status()),
            "You have passed an invalid argument to the service (argument=Invalid labels: Invalid "
            "field \"labels\"; key "
            "\"Upper\" does not conform to regular expression "
            "\"[\\p{Ll}\\p{Lo}][\\p{Ll}\\p{Lo}\\p{N}_-]{0,62}\"; first "
            "character \"U\" is not a non-uppercased letter (Unicode character class Ll or Lo)).");
  subscription = plain;
  (*subscription.mutable_labels())["k"] = std::string(64, 'v');
  EXPECT_EQ(TextOf(broker.CreateSubscription(subscription).status()),
            "You have passed an invalid argument to the service (argument=Invalid labels: Invalid "
            "field \"labels.k\"; "
            "value \"" +
                std::string(64, 'v') + "\" exceeds maximum value length 63 with a length of 64).");
  // Unset retention follows a shorter expiration; an empty expiration policy means never and stays
  // empty.
  subscription = plain;
  subscription.mutable_expiration_policy()->mutable_ttl()->set_seconds(2 * 86400);
  EXPECT_EQ(broker.CreateSubscription(subscription)->message_retention_duration().seconds(),
            2 * 86400);
  subscription = plain;
  subscription.set_name("projects/p/subscriptions/never");
  subscription.mutable_expiration_policy();
  auto never = broker.CreateSubscription(subscription);
  EXPECT_TRUE(never->has_expiration_policy() && !never->expiration_policy().has_ttl());
}

TEST(AdminTest, SettingsWithoutBehaviourAreRefusedUnlessDefault) {
  VirtualBroker broker;
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  pb::Subscription subscription;
  subscription.set_name(kSubscription);
  subscription.set_topic(kTopic);
  subscription.set_enable_message_ordering(true);
  EXPECT_EQ(broker.CreateSubscription(subscription).status(),
            Unimplemented("This server does not support the field 'enable_message_ordering' of "
                          "Subscription: leave it "
                          "unset or at its default."));
  subscription.set_enable_message_ordering(false);
  subscription.mutable_push_config()->set_push_endpoint("https://example.com/push");
  EXPECT_EQ(broker.CreateSubscription(subscription).status().code(), StatusCode::kUnimplemented);
  subscription.mutable_push_config()->Clear();
  subscription.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(1);
  EXPECT_EQ(broker.CreateSubscription(subscription).status().code(), StatusCode::kUnimplemented);
  subscription.mutable_retry_policy()->Clear();
  EXPECT_TRUE(broker.CreateSubscription(subscription).ok());
  pb::Topic topic;
  topic.set_name("projects/p/topics/other");
  topic.set_kms_key_name("projects/p/locations/l/keyRings/r/cryptoKeys/k");
  EXPECT_EQ(broker.Get<pb::Topic>([&](auto reply) { broker->CreateTopic(topic, std::move(reply)); })
                .status()
                .code(),
            StatusCode::kUnimplemented);
}

TEST(AdminTest, UpdateMasks) {
  VirtualBroker broker;
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  ASSERT_TRUE(broker.CreateSubscription(kSubscription, kTopic).ok());
  pb::Subscription changed;
  changed.set_name(kSubscription);
  changed.set_ack_deadline_seconds(20);
  (*changed.mutable_labels())["goog-terraform-provisioned"] = "true";
  EXPECT_EQ(TextOf(Update(broker, changed, {}).status()),
            "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a "
            "non-empty paths list.");
  EXPECT_EQ(TextOf(Update(broker, changed, {"filter"}).status()),
            "Invalid update_mask provided in the UpdateSubscriptionRequest: the 'filter' field in "
            "the Subscription is not "
            "mutable.");
  EXPECT_EQ(TextOf(Update(broker, changed, {"ackDeadlineSeconds"}).status()),
            "Invalid update_mask provided in the UpdateSubscriptionRequest: ackDeadlineSeconds is "
            "not a known "
            "Subscription field. Note that field paths must be of the form 'push_config' rather "
            "than 'pushConfig'.");
  auto updated = Update(broker, changed, {"ack_deadline_seconds", "bigquery_config"});
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->ack_deadline_seconds(), 20);
  EXPECT_TRUE(updated->labels().empty());
  EXPECT_EQ(Update(broker, changed, {"labels"})->labels().at("goog-terraform-provisioned"), "true");
  // One bad value leaves all untouched.
  changed.mutable_message_retention_duration()->set_seconds(1);
  changed.set_ack_deadline_seconds(30);
  EXPECT_FALSE(
      Update(broker, changed, {"ack_deadline_seconds", "message_retention_duration"}).ok());
  EXPECT_EQ(GetSubscription(broker, kSubscription)->ack_deadline_seconds(), 20);
  // Nested paths; a masked field that is unset falls back to its default.
  changed.clear_message_retention_duration();
  changed.mutable_expiration_policy()->mutable_ttl()->set_seconds(3 * 86400);
  EXPECT_EQ(Update(broker, changed, {"expiration_policy.ttl"})->expiration_policy().ttl().seconds(),
            3 * 86400);
  changed.clear_expiration_policy();
  EXPECT_EQ(Update(broker, changed, {"expiration_policy"})->expiration_policy().ttl().seconds(),
            2678400);
  pb::UpdateTopicRequest request;
  request.mutable_topic()->set_name(kTopic);
  (*request.mutable_topic()->mutable_labels())["a"] = "b";
  request.mutable_update_mask()->add_paths("labels");
  EXPECT_EQ(
      broker.Get<pb::Topic>([&](auto reply) { broker->UpdateTopic(request, std::move(reply)); })
          ->labels()
          .size(),
      1u);
}

TEST(AdminTest, ListsArePagedByName) {
  VirtualBroker broker;
  for (std::string id : {"ccc", "aaa", "bbb"})
    ASSERT_TRUE(broker.CreateTopic("projects/p/topics/" + id).ok());
  ASSERT_TRUE(broker.CreateTopic("projects/p2/topics/zzz").ok());
  pb::ListTopicsRequest request;
  request.set_project("projects/p");
  request.set_page_size(2);
  auto list = [&] {
    return broker.Get<pb::ListTopicsResponse>(
        [&](auto reply) { broker->ListTopics(request, std::move(reply)); });
  };
  auto first = list();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->topics_size(), 2);
  EXPECT_EQ(first->topics(1).name(), "projects/p/topics/bbb");
  ASSERT_TRUE(DeleteTopic(broker, "projects/p/topics/bbb").ok());
  request.set_page_token(first->next_page_token());
  auto second = list();
  ASSERT_EQ(second->topics_size(), 1);
  EXPECT_EQ(second->topics(0).name(), "projects/p/topics/ccc");
  EXPECT_EQ(second->next_page_token(), "");
  request.set_page_token("garbage");
  EXPECT_EQ(TextOf(list().status()), "Invalid page token given (token=garbage).");
  request.set_page_size(1001);
  EXPECT_EQ(TextOf(list().status()),
            "The value for page_size is out of bounds. You passed 1001 in the request, but the "
            "value must be between 0 "
            "and 1000.");
}

TEST(AdminTest, NoAnswerShowsWhatIsNotCommitted) {
  VirtualBroker broker;
  pb::Topic topic;
  topic.set_name(kTopic);
  std::optional<Status> created, got, missing;
  broker->CreateTopic(topic, [&](StatusOr<pb::Topic> answer) { created = answer.status(); });
  broker->GetTopic(kTopic, [&](StatusOr<pb::Topic> answer) { got = answer.status(); });
  broker->CreateTopic(topic, [&](StatusOr<pb::Topic> answer) { missing = answer.status(); });
  broker.RunWithoutCommits();
  EXPECT_FALSE(created.has_value() || got.has_value() || missing.has_value());
  broker.Run();
  EXPECT_TRUE(created->ok() && got->ok());
  EXPECT_EQ(missing->code(), StatusCode::kAlreadyExists);
  // What was not committed is gone after a crash.
  broker->DeleteTopic(kTopic, [](Status) {});
  broker.RunWithoutCommits();
  broker.Crash();
  EXPECT_TRUE(GetTopic(broker, kTopic).ok());
}

TEST(AdminTest, ADeletedTopicLeavesItsSubscriptionsWithTheirBacklog) {
  VirtualBroker broker;
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  ASSERT_TRUE(broker.CreateSubscription(kSubscription, kTopic).ok());
  ASSERT_TRUE(broker.Publish(kTopic, {"old"}).ok());
  ASSERT_TRUE(DeleteTopic(broker, kTopic).ok());
  // At once again under the same name: a new topic, with which the old subscription has nothing to
  // do.
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  ASSERT_TRUE(broker.CreateSubscription("projects/p/subscriptions/new", kTopic).ok());
  ASSERT_TRUE(broker.Publish(kTopic, {"new"}).ok());
  for (bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    EXPECT_EQ(GetSubscription(broker, kSubscription)->topic(), "_deleted-topic_");
    EXPECT_THAT(broker.PullTexts(kSubscription), ElementsAre("old"));
    EXPECT_THAT(broker.PullTexts("projects/p/subscriptions/new"), ElementsAre("new"));
    broker.Crash();
  }
  pb::ListTopicSubscriptionsRequest request;
  request.set_topic(kTopic);
  auto names = broker.Get<pb::ListTopicSubscriptionsResponse>(
      [&](auto reply) { broker->ListTopicSubscriptions(request, std::move(reply)); });
  ASSERT_TRUE(names.ok());
  EXPECT_THAT(names->subscriptions(), ElementsAre("projects/p/subscriptions/new"));
  pb::Subscription changed;
  changed.set_name(kSubscription);
  changed.set_ack_deadline_seconds(60);
  EXPECT_TRUE(Update(broker, changed, {"ack_deadline_seconds"}).ok());
  EXPECT_TRUE(DeleteSubscription(broker, kSubscription).ok());
  broker.Crash();
  EXPECT_EQ(GetSubscription(broker, kSubscription).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(broker.CreateSubscription(kSubscription, kTopic).ok());
  EXPECT_THAT(broker.PullTexts(kSubscription), ElementsAre());
}

TEST(AdminTest, TheCatalogueSurvivesCheckpointsAndCrashes) {
  VirtualBroker broker;
  ASSERT_TRUE(broker.CreateTopic(kTopic).ok());
  ASSERT_TRUE(broker.CreateSubscription(kSubscription, kTopic).ok());
  broker.Checkpoint();
  ASSERT_TRUE(broker.CreateSubscription("projects/p/subscriptions/s-2", kTopic).ok());
  ASSERT_TRUE(DeleteSubscription(broker, kSubscription).ok());
  for (int i = 0; i < 3; ++i) {
    broker.Crash();
    EXPECT_EQ(GetSubscription(broker, kSubscription).status().code(), StatusCode::kNotFound);
    EXPECT_TRUE(GetSubscription(broker, "projects/p/subscriptions/s-2").ok());
    if (i == 1) broker.Checkpoint();
  }
}

}  // namespace
}  // namespace millrace::pubsub
