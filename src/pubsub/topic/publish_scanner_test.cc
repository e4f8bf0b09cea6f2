#include "pubsub/topic/publish_scanner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/topic/entry_body.h"
#include "pubsub/topic/publish_scanner_model.h"

namespace millrace::pubsub {
namespace {

namespace pb = google::pubsub::v1;

std::string MessageOfScan(const pb::PublishRequest& request) {
  auto scanned = ScanPublishRequest(request.SerializeAsString());
  return scanned.ok() ? "" : std::string(MessageOf(scanned.status()));
}

pb::PublishRequest OneMessage(std::string_view data) {
  pb::PublishRequest request;
  request.set_topic("projects/p/topics/t");
  request.add_messages()->set_data(std::string(data));
  return request;
}

TEST(PublishScannerTest, StampsIdAndTimeAndKeepsTheRest) {
  pb::PublishRequest request = OneMessage("hello");
  pb::PubsubMessage* second = request.add_messages();
  (*second->mutable_attributes())["b"] = "2";
  (*second->mutable_attributes())["a"] = "";
  second->set_message_id("mine");
  second->mutable_publish_time()->set_seconds(7);
  auto scanned = ScanPublishRequest(request.SerializeAsString());
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  EXPECT_EQ(scanned->topic, "projects/p/topics/t");
  EXPECT_EQ(scanned->count, 2u);
  SharedBytes body = std::move(*scanned).Stamp(1999999999999999, WallTime{1'800'000'000'123'000});
  pb::PublishRequest stored;
  ASSERT_TRUE(stored.ParseFromArray(body.data(), body.size()));
  ASSERT_EQ(stored.messages_size(), 2);
  EXPECT_EQ(stored.messages(0).message_id(), "1999999999999999");
  EXPECT_EQ(stored.messages(1).message_id(), "2000000000000000");
  EXPECT_EQ(stored.messages(1).publish_time().seconds(), 1'800'000'000);
  EXPECT_EQ(stored.messages(1).publish_time().nanos(), 123'000'000);
  EXPECT_EQ(stored.messages(0).data(), "hello");
  EXPECT_EQ(stored.messages(1).attributes().at("b"), "2");
  EXPECT_EQ(stored.messages(1).attributes().at("a"), "");
}

TEST(PublishScannerTest, LimitsHaveTheTextsOfTheService) {
  pb::PublishRequest none;
  none.set_topic("projects/p/topics/t");
  EXPECT_EQ(MessageOfScan(none),
            "The value for message_count is too small. You passed 0 in the request, but the "
            "minimum value is 1.");
  pb::PublishRequest many = OneMessage("x");
  while (many.messages_size() < 1001) *many.add_messages() = many.messages(0);
  EXPECT_EQ(MessageOfScan(many),
            "The value for message_count is too large. You passed 1001 in the request, but the "
            "maximum value is 1000.");
  many.mutable_messages()->RemoveLast();
  EXPECT_EQ(MessageOfScan(many), "");
  pb::PublishRequest large = OneMessage(std::string(10'000'000, 'x'));
  EXPECT_EQ(MessageOfScan(large), "The value for request_size is too large. You passed " +
                                      std::to_string(large.ByteSizeLong()) +
                                      " in the request, but the maximum value is 10000000.");
  EXPECT_EQ(MessageOfScan(OneMessage("")),
            "One or more messages in the publish request is empty. Each message must contain "
            "either non-empty data, or "
            "at least one attribute.");
}

TEST(PublishScannerTest, AttributeRules) {
  auto with = [](std::string key, std::string value) {
    pb::PublishRequest request = OneMessage("x");
    (*request.mutable_messages(0)->mutable_attributes())[key] = value;
    return MessageOfScan(request);
  };
  EXPECT_EQ(with("googclient_deliveryattempt", "1"),
            "The request contains an attribute key that is not valid "
            "(key=googclient_deliveryattempt). Attribute keys must "
            "be non-empty and must not begin with 'goog' (case-insensitive).");
  EXPECT_NE(with("GooGle", "1"), "");
  EXPECT_NE(with("", "1"), "");
  EXPECT_EQ(with("goo", ""), "");
  EXPECT_EQ(with("googclient_traceparent", "00-1-2-01"), "");
  EXPECT_EQ(with(std::string(256, 'k'), std::string(1024, 'v')), "");
  EXPECT_EQ(with(std::string(257, 'k'), ""),
            "The value for attribute_key_size is too large. You passed 257 in the request, but the "
            "maximum value is 256.");
  EXPECT_EQ(with("k", std::string(1025, 'v')),
            "The value for attribute_value_size is too large. You passed 1025 in the request, but "
            "the maximum value is 1024.");
  pb::PublishRequest request = OneMessage("x");
  for (int i = 0; i < 100; ++i)
    (*request.mutable_messages(0)->mutable_attributes())["k" + std::to_string(i)] = "v";
  EXPECT_EQ(MessageOfScan(request), "");
  (*request.mutable_messages(0)->mutable_attributes())["one more"] = "v";
  EXPECT_EQ(MessageOfScan(request),
            "The value for attribute_count is too large. You passed 101 in the request, but the "
            "maximum value is 100.");
}

TEST(PublishScannerTest, OrderingKeys) {
  pb::PublishRequest request = OneMessage("x");
  request.mutable_messages(0)->set_ordering_key(std::string(1024, 'k'));
  EXPECT_EQ(MessageOfScan(request), "");
  *request.add_messages() = request.messages(0);
  EXPECT_EQ(MessageOfScan(request), "");
  request.mutable_messages(1)->set_ordering_key("other");
  EXPECT_EQ(MessageOfScan(request),
            "In a single publish request, all messages must have the same ordering key.");
  request.mutable_messages(0)->set_ordering_key(std::string(1025, 'k'));
  EXPECT_EQ(MessageOfScan(request),
            "The value for ordering_key_size is too large. You passed 1025 in the request, but the "
            "maximum value is 1024.");
}

TEST(PublishScannerTest, InvalidUtf8IsInternalWithTheTextClientsMatch) {
  std::string wire = "\x12\x06\x0a\x01x\x2a\x01\xff";
  auto scanned = ScanPublishRequest(wire);
  EXPECT_EQ(scanned.status().code(), StatusCode::kInternal);
  EXPECT_NE(MessageOf(scanned.status()).find("string field contains invalid UTF-8"),
            std::string_view::npos);
}

TEST(PublishScannerTest, TheLastOfDuplicateAttributesIsKept) {
  // data x, attributes a=1, b=2, a=3
  std::string entry1 =
                  "\x12\x06\x0a\x01"
                  "a\x12\x01"
                  "1",
              entry2 =
                  "\x12\x06\x0a\x01"
                  "b\x12\x01"
                  "2",
              entry3 =
                  "\x12\x06\x0a\x01"
                  "a\x12\x01"
                  "3";
  std::string message = "\x0a\x01x" + entry1 + entry2 + entry3;
  auto scanned =
      ScanPublishRequest("\x12" + std::string(1, static_cast<char>(message.size())) + message);
  ASSERT_TRUE(scanned.ok());
  SharedBytes body = std::move(*scanned).Stamp(kMessageIdMin, WallTime{0});
  EntryBodyReader reader(body.view());
  std::string_view wire;
  ASSERT_TRUE(reader.Next(&wire));
  EXPECT_EQ(wire.substr(kStampBytes), "\x0a\x01x" + entry3 + entry2);
}

TEST(PublishScannerTest, MessagesFromInsideMayDifferInOrderingKey) {
  std::vector<SharedBytes> messages;
  for (int i = 0; i < 1500; ++i) {
    pb::PubsubMessage message;
    message.set_data("x");
    message.set_ordering_key("k" + std::to_string(i));
    messages.emplace_back(message.SerializeAsString());
  }
  auto scanned = ScanMessages(messages);
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  EXPECT_EQ(scanned->count, 1500u);
  pb::PublishRequest stored;
  SharedBytes body = std::move(*scanned).Stamp(kMessageIdMin, WallTime{0});
  ASSERT_TRUE(stored.ParseFromArray(body.data(), body.size()));
  EXPECT_EQ(stored.messages(1499).ordering_key(), "k1499");
  EXPECT_EQ(stored.messages(1499).message_id(), std::to_string(kMessageIdMin + 1499));
}

// Random requests, some of them damaged, give what parsing with the generated class and checking
// its fields gives.
TEST(PublishScannerTest, AgreesWithTheGeneratedClass) {
  uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string wire = RandomPublishRequest(random);
    std::string difference = CompareScanWithModel(wire, &accepted);
    ASSERT_EQ(difference, "") << "round " << i;
  }
  EXPECT_GT(accepted, 2'000);
}

}  // namespace
}  // namespace millrace::pubsub
