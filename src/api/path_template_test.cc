#include "api/path_template.h"

#include <gtest/gtest.h>

namespace millrace::api {
namespace {

PathTemplate MustParse(std::string_view text) {
  StatusOr<PathTemplate> parsed = PathTemplate::Parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return *parsed;
}

TEST(PathTemplate, BindsVariablesOverSeveralSegmentsAndMatchesTheVerb) {
  PathTemplate path = MustParse("/v1/{topic=projects/*/topics/*}:publish");
  auto bindings = path.Match(RequestPath("/v1/projects/p/topics/t:publish"));
  ASSERT_TRUE(bindings);
  EXPECT_EQ(*bindings, (PathBindings{{"topic", "projects/p/topics/t"}}));
  EXPECT_FALSE(path.Match(RequestPath("/v1/projects/p/topics/t")));
  EXPECT_FALSE(path.Match(RequestPath("/v1/projects/p/topics/t:pull")));
  EXPECT_FALSE(path.Match(RequestPath("/v1/projects/p/topics/:publish")));
  EXPECT_FALSE(path.Match(RequestPath("/v1/projects/p/topics/t/more:publish")));
  EXPECT_FALSE(path.Match(RequestPath("/v2/projects/p/topics/t:publish")));
}

TEST(PathTemplate, DecodesEscapesOnceAndKeepsEscapedSlashes) {
  PathTemplate path = MustParse("/v1/{name=projects/*/topics/*}");
  EXPECT_EQ(path.Match(RequestPath("/v1/projects/p/topics/a%25b%2Bc"))->at(0).second,
            "projects/p/topics/a%b+c");
  EXPECT_EQ(path.Match(RequestPath("/v1/projects/p/topics/a%2Fb"))->at(0).second,
            "projects/p/topics/a%2Fb");
  EXPECT_EQ(path.Match(RequestPath("/v1/projects/p/topics/a%zz%4"))->at(0).second,
            "projects/p/topics/a%zz%4");
}

TEST(PathTemplate, LiteralsMayFollowVariablesAndRestTakesTheRemainder) {
  PathTemplate list = MustParse("/v1/{topic=projects/*/topics/*}/subscriptions");
  EXPECT_TRUE(list.Match(RequestPath("/v1/projects/p/topics/t/subscriptions")));
  EXPECT_FALSE(list.Match(RequestPath("/v1/projects/p/topics/t/snapshots")));
  PathTemplate any = MustParse("/v1/{resource=**}:setIamPolicy");
  EXPECT_EQ(any.Match(RequestPath("/v1/projects/p/topics/t:setIamPolicy"))->at(0).second,
            "projects/p/topics/t");
  EXPECT_EQ(MustParse("/v1/{a}/x/{b.c}").Match(RequestPath("/v1/1/x/2")),
            (PathBindings{{"a", "1"}, {"b.c", "2"}}));
}

TEST(PathTemplate, RefusesWhatIsNoTemplate) {
  for (const char* text : {"", "v1/x", "/", "/v1//x", "/v1/{name", "/v1/{name=**}/x", "/v1/{a}b"}) {
    EXPECT_FALSE(PathTemplate::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace millrace::api
