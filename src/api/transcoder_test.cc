#include "api/transcoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/errors.h"
#include "api/json_text.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"

namespace millrace::api {
namespace {

namespace pb = google::pubsub::v1;
using testing::HasSubstr;

class TranscoderTest : public testing::Test {
 protected:
  TranscoderTest() {
    for (const auto* file : {pb::Topic::descriptor()->file(), pb::Schema::descriptor()->file()}) {
      for (int i = 0; i < file->service_count(); ++i) transcoder_.Add(*file->service(i));
    }
  }
  // The request as protobuf's short text, or the error's message.
  std::string Call(std::string_view method, std::string_view target, std::string_view body = "") {
    auto call = transcoder_.ToCall(method, target, body);
    if (!call) return "no route";
    if (!call->ok()) return std::string(MessageOf(call->status()));
    return (*call)->method->name() + " " + (*call)->request->ShortDebugString();
  }
  Transcoder transcoder_;
};

TEST_F(TranscoderTest, PathBodyAndQueryMakeTheRequest) {
  EXPECT_EQ(Call("PUT", "/v1/projects/p/topics/t", R"({"labels":{"a":"b"},"name":"other"})"),
            R"(CreateTopic name: "projects/p/topics/t" labels { key: "a" value: "b" })");
  EXPECT_EQ(Call("PUT", "/v1/projects/p/topics/t?alt=json", ""),
            R"(CreateTopic name: "projects/p/topics/t")");
  EXPECT_EQ(Call("GET", "/v1/projects/p/topics?pageSize=7&pageToken=a%2Bb+c&prettyPrint=false"),
            R"(ListTopics project: "projects/p" page_size: 7 page_token: "a+b c")");
  EXPECT_EQ(
      Call("POST", "/v1/projects/p/schemas?schemaId=s", R"({"type":"AVRO","definition":"x"})"),
      R"(CreateSchema parent: "projects/p" schema { type: AVRO definition: "x" } )"
      R"(schema_id: "s")");
  EXPECT_EQ(Call("GET", "/v1/projects/p/schemas/s?view=BASIC"),
            R"(GetSchema name: "projects/p/schemas/s" view: BASIC)");
  EXPECT_EQ(Call("POST", "/v1/projects/p/subscriptions/s:detach", "{}"),
            R"(DetachSubscription subscription: "projects/p/subscriptions/s")");
  EXPECT_EQ(Call("POST", "/v1/projects/p/subscriptions/s:pull", R"({"max_messages":"3"})"),
            R"(Pull subscription: "projects/p/subscriptions/s" max_messages: 3)");
  EXPECT_EQ(Call("GET", "/v1/projects/p/nothing"), "no route");
  EXPECT_EQ(Call("POST", "/v1/projects/p/topics/t"), "no route");
}

TEST_F(TranscoderTest, UpdateMaskComesInAllItsForms) {
  const std::string want =
      R"(UpdateSubscription subscription { name: "projects/p/subscriptions/s" )"
      R"(ack_deadline_seconds: 20 } update_mask { paths: "ack_deadline_seconds" )"
      R"(paths: "retry_policy.minimum_backoff" })";
  const char* path = "/v1/projects/p/subscriptions/s";
  EXPECT_EQ(Call("PATCH", path,
                 R"({"subscription":{"ackDeadlineSeconds":20},
                     "updateMask":"ackDeadlineSeconds,retryPolicy.minimumBackoff"})"),
            want);
  EXPECT_EQ(Call("PATCH", path,
                 R"({"subscription":{"ack_deadline_seconds":20},
                     "update_mask":"ack_deadline_seconds,retry_policy.minimum_backoff"})"),
            want);
  EXPECT_EQ(Call("PATCH",
                 std::string(path) +
                     "?alt=json&updateMask=ackDeadlineSeconds%2CretryPolicy.minimumBackoff",
                 R"({"subscription":{"ackDeadlineSeconds":20}})"),
            want);
}

TEST_F(TranscoderTest, ExplicitNullsAreAbsentAndEmptyMessagesPresent) {
  EXPECT_EQ(Call("PUT", "/v1/projects/p/subscriptions/s",
                 R"({"topic":"t","labels":null,"retryPolicy":null,"pushConfig":{},
                     "messageRetentionDuration":"600.5s"})"),
            R"(CreateSubscription name: "projects/p/subscriptions/s" topic: "t" push_config { } )"
            R"(message_retention_duration { seconds: 600 nanos: 500000000 })");
}

TEST_F(TranscoderTest, ErrorsNameFieldAndValue) {
  const char* publish = "/v1/projects/p/topics/t:publish";
  EXPECT_EQ(Call("POST", publish, R"({"noSuchField":1})"),
            "Invalid JSON payload received. Unknown name \"noSuchField\": Cannot find field.");
  EXPECT_EQ(Call("POST", publish, R"({"messages":[{"data":""},{"foo":1}]})"),
            "Invalid JSON payload received. Unknown name \"foo\" at 'messages[1]': Cannot find "
            "field.");
  EXPECT_EQ(Call("POST", publish, R"({"messages":[{"data":"%%"}]})"),
            "Invalid value at 'messages[0].data' (TYPE_BYTES), Base64 decoding failed for \"%%\"");
  EXPECT_EQ(Call("PUT", "/v1/projects/p/subscriptions/s", R"({"ackDeadlineSeconds":"abc"})"),
            "Invalid value at 'ack_deadline_seconds' (TYPE_INT32), \"abc\"");
  EXPECT_THAT(Call("POST", publish, "{"), HasSubstr("Invalid JSON payload received. "));
  EXPECT_THAT(Call("POST", publish, "[]"), HasSubstr("Invalid JSON payload received. "));
  EXPECT_THAT(Call("GET", "/v1/projects/p/topics?nope=1"), HasSubstr("Unknown name \"nope\""));
  EXPECT_THAT(Call("GET", "/v1/projects/p/topics?pageSize=x"), HasSubstr("page_size"));
  EXPECT_THAT(Call("PUT", "/v1/projects/p/subscriptions/s",
                   R"({"ackDeadlineSeconds":10,"ack_deadline_seconds":20})"),
              HasSubstr("ack_deadline_seconds"));
  // Keys of maps are not fields.
  EXPECT_THAT(Call("PUT", "/v1/projects/p/topics/t", R"({"labels":{"a_b":"1","aB":"2"}})"),
              HasSubstr("CreateTopic"));
}

TEST_F(TranscoderTest, ErrorEnvelopeCarriesTheBadRequest) {
  auto call = transcoder_.ToCall("POST", "/v1/projects/p/topics/t:publish", R"({"x":1})");
  EXPECT_EQ(IndentJson(ErrorJson(call->status())), R"({
  "error": {
    "code": 400,
    "message": "Invalid JSON payload received. Unknown name \"x\": Cannot find field.",
    "status": "INVALID_ARGUMENT",
    "details": [
      {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [
          {
            "description": "Invalid JSON payload received. Unknown name \"x\": Cannot find field."
          }
        ]
      }
    ]
  }
}
)");
}

TEST_F(TranscoderTest, AnswersAreIndentedAsGoogleDoes) {
  pb::Subscription subscription;
  subscription.set_name("projects/p/subscriptions/s{,}");
  subscription.mutable_push_config();
  subscription.set_ack_deadline_seconds(10);
  const auto* method = pb::Topic::descriptor()
                           ->file()
                           ->FindServiceByName("Subscriber")
                           ->FindMethodByName("GetSubscription");
  EXPECT_EQ(IndentJson(*Transcoder::ToJson(*method, subscription.SerializeAsString())), R"({
  "name": "projects/p/subscriptions/s{,}",
  "pushConfig": {},
  "ackDeadlineSeconds": 10
}
)");
  subscription.Clear();
  subscription.set_state(pb::Subscription::ACTIVE);
  EXPECT_EQ(*Transcoder::ToJson(*method, subscription.SerializeAsString()),
            R"({"state":"ACTIVE"})");
  auto numbers = Transcoder::ReadSystemParameters("/x?%24alt=json%3Benum-encoding%3Dint");
  EXPECT_EQ(
      *Transcoder::ToJson(*method, subscription.SerializeAsString(), numbers.enums_as_numbers),
      R"({"state":1})");
  EXPECT_EQ(IndentJson("{}"), "{}\n");
  EXPECT_EQ(IndentJson(R"({"a":[1,{"b\"}":[]}]})"),
            "{\n  \"a\": [\n    1,\n    {\n      "
            "\"b\\\"}\": []\n    }\n  ]\n}\n");
}

}  // namespace
}  // namespace millrace::api
