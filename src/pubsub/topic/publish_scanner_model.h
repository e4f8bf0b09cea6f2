// What the publish scanner must agree with: the generated class, and the rules checked on its
// fields. For the test and the fuzzer only; slow and obvious.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "google/pubsub/v1/pubsub.pb.h"
#include "pubsub/topic/entry_body.h"
#include "pubsub/topic/publish_scanner.h"

namespace millrace::pubsub {

inline bool ModelAcceptsAttribute(const std::string& key, const std::string& value) {
  static const std::set<std::string> kTrace = {"googclient_traceparent", "googclient_tracestate",
                                               "googclient_OpenCensusTraceContextKey",
                                               "googclient_OpenCensusTagContextKey"};
  std::string prefix = key.substr(0, 4);
  std::transform(prefix.begin(), prefix.end(), prefix.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return !key.empty() && key.size() <= 256 && value.size() <= 1024 &&
         (prefix != "goog" || kTrace.contains(key));
}

inline bool ModelAccepts(const google::pubsub::v1::PublishRequest& request) {
  if (request.messages_size() < 1 || request.messages_size() > 1000) return false;
  for (const auto& message : request.messages()) {
    if (message.data().empty() && message.attributes().empty()) return false;
    if (message.attributes().size() > 100 || message.ordering_key().size() > 1024) return false;
    if (message.ordering_key() != request.messages(0).ordering_key()) return false;
    for (const auto& [key, value] : message.attributes()) {
      if (!ModelAcceptsAttribute(key, value)) return false;
    }
  }
  return true;
}

// Empty if the scanner agrees; else what differs. Counts what was accepted.
inline std::string CompareScanWithModel(std::string_view wire, int* accepted) {
  google::pubsub::v1::PublishRequest model;
  google::protobuf::SetLogHandler(nullptr);
  bool parsed = model.ParseFromArray(wire.data(), wire.size());
  auto scanned = ScanPublishRequest(wire);
  bool expected = parsed && wire.size() <= 10'000'000 && ModelAccepts(model);
  if (scanned.ok() != expected) {
    return fmt::format("model parses: {}, accepts: {}; scanner: {}", parsed, expected,
                       scanned.status().ToString());
  }
  if (!expected) return "";
  ++*accepted;
  if (scanned->topic != model.topic() ||
      scanned->count != static_cast<uint32_t>(model.messages_size()) ||
      scanned->ordering_key != model.messages(0).ordering_key()) {
    return "topic, count or ordering key";
  }
  SharedBytes body = std::move(*scanned).Stamp(kMessageIdMin + 42, WallTime{1'700'000'000'000'000});
  google::pubsub::v1::PublishRequest stored;
  if (!stored.ParseFromArray(body.data(), body.size())) return "the body does not parse";
  if (stored.messages_size() != model.messages_size()) return "number of messages in the body";
  for (int i = 0; i < stored.messages_size(); ++i) {
    google::pubsub::v1::PubsubMessage want;
    want.set_data(model.messages(i).data());
    *want.mutable_attributes() = model.messages(i).attributes();
    want.set_ordering_key(model.messages(i).ordering_key());
    want.set_message_id(fmt::format("{}", kMessageIdMin + 42 + i));
    want.mutable_publish_time()->set_seconds(1'700'000'000);
    if (want.DebugString() != stored.messages(i).DebugString()) {
      return fmt::format("message {}: want {} got {}", i, want.DebugString(),
                         stored.messages(i).DebugString());
    }
  }
  return "";
}

// Wire form written by hand, so that it may be odd: fields twice, out of order, unknown, over-long
// varints, nested groups, damaged bytes.
class RandomWire {
 public:
  explicit RandomWire(std::mt19937& random) : random_(random) {}

  std::string Request() {
    std::string out = Field(1, "projects/p/topics/t");
    int messages = static_cast<int>(random_() % 4) + (Chance(10) ? 0 : 1);
    key_ = Chance(4) ? Text() : "";
    for (int i = 0; i < messages; ++i) {
      out += Field(2, Message());
      if (Chance(40)) out += Unknown(0);
    }
    if (Chance(40)) out += Field(1, Text());
    if (Chance(6) && !out.empty()) Damage(out);
    return out;
  }

 private:
  bool Chance(uint32_t one_in) { return random_() % one_in == 0; }

  std::string Varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
    if (Chance(200)) {
      out.back() |= static_cast<char>(0x80);
      out += std::string(random_() % 2, static_cast<char>(0x80)) + '\0';
    }
    return out;
  }
  std::string Field(uint32_t number, std::string_view value) {
    return Varint(number << 3 | 2) + Varint(value.size()) + std::string(value);
  }
  std::string Text() {
    static const char* const kTexts[] = {"a",
                                         "b",
                                         "key",
                                         "goog",
                                         "googclient_traceparent",
                                         "Goog1",
                                         "",
                                         "\xc3\xa4",
                                         "\xe2\x82\xac and more than eight",
                                         "\xf0\x9f\x98\x80",
                                         "\xff",
                                         "\xed\xa0\x80",
                                         "\xc0\x80",
                                         "abcdefghijklmnop",
                                         "\xf4\x90\x80\x80"};
    // The first ones are far more common.
    uint32_t i = Chance(25) ? random_() % std::size(kTexts) : random_() % 3;
    if (Chance(300)) return std::string(random_() % 1100, 'x');
    return kTexts[i];
  }
  std::string Unknown(int depth) {
    uint32_t number = 1 + random_() % 40;
    switch (random_() % 5) {
      case 0:
        return Varint(number << 3) + Varint(random_());
      case 1:
        return Varint(number << 3 | 1) + std::string(8, 'f');
      case 2:
        return Varint((number + 6) << 3 | 2) + Varint(3) + "abc";
      case 3: {
        if (depth == 0 && Chance(4)) {
          int levels = 95 + static_cast<int>(random_() % 10);
          std::string open, close;
          for (int i = 0; i < levels; ++i) open += Varint(9 << 3 | 3), close += Varint(9 << 3 | 4);
          return open + close;
        }
        std::string inner = depth < 3 && Chance(2) ? Unknown(depth + 1) : "";
        return Varint(number << 3 | 3) + inner + Varint((Chance(10) ? 77 : number) << 3 | 4);
      }
      default:
        return Varint(number << 3 | 5) + "1234";
    }
  }
  std::string Entry() {
    std::string key = Field(1, Text()), value = Field(2, Text());
    if (Chance(12)) return value + key;
    if (Chance(20)) return key;
    if (Chance(40)) return value;
    if (Chance(40)) return key + value + Field(1, Text());
    if (Chance(40)) return key + Unknown(0) + value;
    return key + value;
  }
  std::string Message() {
    std::string out;
    if (!Chance(6)) out += Field(1, std::string(random_() % 40, 'd'));
    for (int i = Chance(3) ? random_() % 6 : 0; i > 0; --i) out += Field(2, Entry());
    if (Chance(50)) {
      for (int i = 0; i < 110; ++i)
        out += Field(2, Field(1, std::to_string(random_() % 105)) + Field(2, "v"));
    }
    if (Chance(8)) out += Field(3, Text());
    if (Chance(8)) out += Field(4, Chance(3) ? Unknown(0) : "\x08\x05\x10\x06");
    if (!key_.empty()) out += Field(5, Chance(30) ? Text() : key_);
    if (Chance(12)) out += Unknown(0);
    if (Chance(20)) out += Field(1, Text());
    return out;
  }
  void Damage(std::string& out) {
    size_t at = random_() % out.size();
    switch (random_() % 3) {
      case 0:
        out[at] = static_cast<char>(random_());
        break;
      case 1:
        out.resize(at);
        break;
      default:
        out.insert(at, 1, static_cast<char>(random_()));
    }
  }

  std::mt19937& random_;
  std::string key_;
};

inline std::string RandomPublishRequest(std::mt19937& random) {
  return RandomWire(random).Request();
}

}  // namespace millrace::pubsub
