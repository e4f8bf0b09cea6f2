#include "net/url.h"

#include <gtest/gtest.h>

namespace millrace::net {
namespace {

TEST(Url, Parts) {
  auto url = ParseUrl("HTTP://example.com:8080/a/b?c=d#frag");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_FALSE(url->tls);
  EXPECT_EQ(url->host, "example.com");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->authority, "example.com:8080");
  EXPECT_EQ(url->target, "/a/b?c=d");
}

TEST(Url, Defaults) {
  auto url = ParseUrl("https://example.com");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(url->authority, "example.com");
  EXPECT_EQ(url->target, "/");
  EXPECT_EQ(ParseUrl("http://h?q")->target, "/?q");
  EXPECT_EQ(ParseUrl("http://h:80/")->authority, "h");
}

TEST(Url, Ipv6) {
  auto url = ParseUrl("http://[::1]:99/x");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "99");
  EXPECT_EQ(url->authority, "[::1]:99");
}

TEST(Url, Refused) {
  for (const char* text : {"", "example.com", "ftp://h/", "http://", "http:///x", "http://u:p@h/",
                           "http://h:0/", "http://h:65536/", "http://h:x/", "http://[::1/",
                           "http://[::1]x/", "http://h/a b", "http://h/a\r\nX: y", "http://[]/"}) {
    EXPECT_EQ(ParseUrl(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace millrace::net
