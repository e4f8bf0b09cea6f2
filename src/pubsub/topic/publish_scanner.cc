#include "pubsub/topic/publish_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/utf8.h"
#include "pubsub/topic/entry_body.h"
#include "pubsub/topic/wire_cursor.h"

namespace millrace::pubsub {
namespace {

// Fields of google.pubsub.v1.PublishRequest and PubsubMessage by tag.
constexpr uint32_t kTopic = WireTag(1, 2);
constexpr uint32_t kMessages = WireTag(2, 2);
constexpr uint32_t kBytesData = WireTag(1, 2);
constexpr uint32_t kAttributes = WireTag(2, 2);
constexpr uint32_t kMessageId = WireTag(3, 2);
constexpr uint32_t kPublishTime = WireTag(4, 2);
constexpr uint32_t kOrderingKey = WireTag(5, 2);
constexpr uint32_t kEntryKey = WireTag(1, 2);
constexpr uint32_t kEntryValue = WireTag(2, 2);

// What encloses a field of a message and of a map entry.
constexpr int kRequestDepth = 0;
constexpr int kMessageDepth = 1;
constexpr int kEntryDepth = 2;

// Above this many attributes duplicates are found by a hash table.
constexpr size_t kPairwiseMax = 12;

// Stamp, tag and length before a message.
constexpr size_t kMessageOverheadMax = kStampBytes + 1 + 5;

Status Malformed() {
  return InvalidArgument("The request is not a well-formed google.pubsub.v1.PublishRequest.");
}

Status BadUtf8(std::string_view field) {
  return Internal(fmt::format(
      "The request cannot be read: string field contains invalid UTF-8 (field={}).", field));
}

Status TooLarge(std::string_view name, uint64_t value, uint64_t max) {
  return InvalidArgument(fmt::format(
      "The value for {} is too large. You passed {} in the request, but the maximum value is {}.",
      name, value, max));
}

bool BeginsWithGoog(std::string_view key) {
  return key.size() >= 4 && (key[0] | 0x20) == 'g' && (key[1] | 0x20) == 'o' &&
         (key[2] | 0x20) == 'o' && (key[3] | 0x20) == 'g';
}

// What tracing of official clients adds.
bool IsTraceKey(std::string_view key) {
  return key == "googclient_traceparent" || key == "googclient_tracestate" ||
         key == "googclient_OpenCensusTraceContextKey" ||
         key == "googclient_OpenCensusTagContextKey";
}

size_t VarintBytes(uint32_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

char* PutVarint32(char* out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}

char* PutBytes(char* out, std::string_view bytes) {
  std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

char* PutField(char* out, uint32_t tag, std::string_view value) {
  *out++ = static_cast<char>(tag);
  return PutBytes(PutVarint32(out, value.size()), value);
}

size_t FieldBytes(std::string_view value) { return 1 + VarintBytes(value.size()) + value.size(); }

// One message at a time; reused so that attributes need no allocation of their own.
class MessageScanner {
 public:
  Status Scan(std::string_view message);
  // Call after Scan. Returns the end of what was written, at most kMessageOverheadMax more than the
  // message's bytes.
  char* Write(char* out) const;
  std::string_view ordering_key() const { return ordering_key_; }

 private:
  struct Attribute {
    std::string_view key;
    std::string_view value;
  };

  static size_t EntryBytes(const Attribute& attribute) {
    return FieldBytes(attribute.key) + (attribute.value.empty() ? 0 : FieldBytes(attribute.value));
  }
  Status ScanField(uint32_t tag, WireCursor& cursor);
  Status ScanAttribute(std::string_view entry);
  Status ScanIgnored(uint32_t tag, WireCursor& cursor);
  Status CheckAttribute(const Attribute& attribute);
  void DropOverridden();
  Status CheckLimits() const;

  std::string_view raw_;
  // The bytes can be stored as they are.
  bool plain_ = true;
  std::string_view data_;
  std::string_view ordering_key_;
  std::vector<Attribute> attributes_;
};

Status MessageScanner::Scan(std::string_view message) {
  raw_ = message;
  plain_ = true;
  data_ = ordering_key_ = {};
  attributes_.clear();
  WireCursor cursor(message);
  while (!cursor.AtEnd()) {
    uint32_t tag;
    if (!cursor.Tag(&tag)) return Malformed();
    if (tag == kBytesData) {
      plain_ &= data_.data() == nullptr;
      if (!cursor.Bytes(&data_)) return Malformed();
    } else {
      MR_RETURN_IF_ERROR(ScanField(tag, cursor));
    }
  }
  if (attributes_.size() > 1) DropOverridden();
  for (const Attribute& attribute : attributes_) MR_RETURN_IF_ERROR(CheckAttribute(attribute));
  return CheckLimits();
}

Status MessageScanner::ScanField(uint32_t tag, WireCursor& cursor) {
  std::string_view value;
  switch (tag) {
    case kAttributes:
      if (!cursor.Bytes(&value)) return Malformed();
      return ScanAttribute(value);
    case kOrderingKey:
      plain_ &= ordering_key_.data() == nullptr;
      if (!cursor.Bytes(&ordering_key_)) return Malformed();
      return IsValidUtf8(ordering_key_) ? OkStatus() : BadUtf8("PubsubMessage.ordering_key");
    default:
      return ScanIgnored(tag, cursor);
  }
}

// The caller's id and time, and fields nobody knows.
Status MessageScanner::ScanIgnored(uint32_t tag, WireCursor& cursor) {
  plain_ = false;
  if (tag != kMessageId && tag != kPublishTime) {
    return cursor.Skip(tag, kMessageDepth) ? OkStatus() : Malformed();
  }
  std::string_view value;
  if (!cursor.Bytes(&value)) return Malformed();
  if (tag == kMessageId)
    return IsValidUtf8(value) ? OkStatus() : BadUtf8("PubsubMessage.message_id");
  return WireCursor::IsMessage(value, kMessageDepth + 1) ? OkStatus() : Malformed();
}

Status MessageScanner::ScanAttribute(std::string_view entry) {
  Attribute attribute;
  WireCursor cursor(entry);
  int fields = 0;
  while (!cursor.AtEnd()) {
    uint32_t tag;
    if (!cursor.Tag(&tag)) return Malformed();
    ++fields;
    if (tag == kEntryKey) {
      plain_ &= fields == 1;
      if (!cursor.Bytes(&attribute.key)) return Malformed();
      if (!IsValidUtf8(attribute.key)) return BadUtf8("PubsubMessage.attributes");
    } else if (tag == kEntryValue) {
      plain_ &= fields == 2;
      if (!cursor.Bytes(&attribute.value)) return Malformed();
      if (!IsValidUtf8(attribute.value)) return BadUtf8("PubsubMessage.attributes");
    } else {
      plain_ = false;
      if (!cursor.Skip(tag, kEntryDepth)) return Malformed();
    }
  }
  plain_ &= fields == 2;
  attributes_.push_back(attribute);
  return OkStatus();
}

Status MessageScanner::CheckAttribute(const Attribute& attribute) {
  std::string_view key = attribute.key;
  if (key.empty() || (BeginsWithGoog(key) && !IsTraceKey(key))) {
    return InvalidArgument(
        fmt::format("The request contains an attribute key that is not valid (key={}). Attribute "
                    "keys must be non-empty "
                    "and must not begin with 'goog' (case-insensitive).",
                    key));
  }
  if (key.size() > kAttributeKeyBytesMax)
    return TooLarge("attribute_key_size", key.size(), kAttributeKeyBytesMax);
  if (attribute.value.size() > kAttributeValueBytesMax) {
    return TooLarge("attribute_value_size", attribute.value.size(), kAttributeValueBytesMax);
  }
  return OkStatus();
}

// Of several attributes of one name the last one stays, at the place of the first.
void MessageScanner::DropOverridden() {
  size_t kept = 0;
  if (attributes_.size() <= kPairwiseMax) {
    for (size_t i = 0; i < attributes_.size(); ++i) {
      size_t j = 0;
      while (j < kept && attributes_[j].key != attributes_[i].key) ++j;
      attributes_[j] = attributes_[i];
      if (j == kept) ++kept;
    }
  } else {
    absl::flat_hash_map<std::string_view, size_t> places;
    places.reserve(attributes_.size());
    for (size_t i = 0; i < attributes_.size(); ++i) {
      size_t j = places.try_emplace(attributes_[i].key, kept).first->second;
      attributes_[j] = attributes_[i];
      if (j == kept) ++kept;
    }
  }
  if (kept == attributes_.size()) return;
  attributes_.resize(kept);
  plain_ = false;
}

Status MessageScanner::CheckLimits() const {
  if (data_.empty() && attributes_.empty()) {
    return InvalidArgument(
        "One or more messages in the publish request is empty. Each message must contain either "
        "non-empty data, or at "
        "least one attribute.");
  }
  if (attributes_.size() > kAttributesMax)
    return TooLarge("attribute_count", attributes_.size(), kAttributesMax);
  if (ordering_key_.size() > kOrderingKeyBytesMax) {
    return TooLarge("ordering_key_size", ordering_key_.size(), kOrderingKeyBytesMax);
  }
  return OkStatus();
}

char* MessageScanner::Write(char* out) const {
  *out++ = kMessageTag;
  if (plain_) {
    out = PutVarint32(out, kStampBytes + raw_.size()) + kStampBytes;
    return PutBytes(out, raw_);
  }
  size_t size = kStampBytes;
  if (!data_.empty()) size += FieldBytes(data_);
  for (const Attribute& attribute : attributes_) {
    size_t entry = EntryBytes(attribute);
    size += 1 + VarintBytes(entry) + entry;
  }
  if (!ordering_key_.empty()) size += FieldBytes(ordering_key_);
  out = PutVarint32(out, size) + kStampBytes;
  if (!data_.empty()) out = PutField(out, kBytesData, data_);
  for (const Attribute& attribute : attributes_) {
    *out++ = static_cast<char>(kAttributes);
    out = PutVarint32(out, EntryBytes(attribute));
    out = PutField(out, kEntryKey, attribute.key);
    if (!attribute.value.empty()) out = PutField(out, kEntryValue, attribute.value);
  }
  if (!ordering_key_.empty()) out = PutField(out, kOrderingKey, ordering_key_);
  return out;
}

// Room for `count` messages of `bytes` in all: written out, a message's fields are never longer
// than they came.
std::shared_ptr<char[]> MakeBuffer(size_t bytes, size_t count) {
  return std::make_shared_for_overwrite<char[]>(bytes + count * kMessageOverheadMax);
}

// The outermost level: topic and number of messages.
Status ScanFrame(std::string_view request, ScannedPublish* out) {
  WireCursor cursor(request);
  std::string_view topic, ignored;
  while (!cursor.AtEnd()) {
    uint32_t tag;
    if (!cursor.Tag(&tag)) return Malformed();
    if (tag == kMessages) {
      if (!cursor.Bytes(&ignored)) return Malformed();
      ++out->count;
    } else if (tag == kTopic) {
      if (!cursor.Bytes(&topic)) return Malformed();
      if (!IsValidUtf8(topic)) return BadUtf8("PublishRequest.topic");
    } else if (!cursor.Skip(tag, kRequestDepth)) {
      return Malformed();
    }
  }
  out->topic = topic;
  return OkStatus();
}

Status CheckCount(uint32_t count) {
  if (count == 0) {
    return InvalidArgument(
        "The value for message_count is too small. You passed 0 in the request, but the minimum "
        "value is 1.");
  }
  if (count > kPublishMessagesMax) return TooLarge("message_count", count, kPublishMessagesMax);
  return OkStatus();
}

}  // namespace

SharedBytes ScannedPublish::Stamp(uint64_t first_id, WallTime publish_time) && {
  StampBody(buffer.get(), size, first_id, publish_time);
  std::string_view view(buffer.get(), size);
  return SharedBytes(std::move(buffer), view);
}

StatusOr<ScannedPublish> ScanPublishRequest(std::string_view request) {
  if (request.size() > kPublishRequestBytesMax) {
    return TooLarge("request_size", request.size(), kPublishRequestBytesMax);
  }
  ScannedPublish out;
  MR_RETURN_IF_ERROR(ScanFrame(request, &out));
  MR_RETURN_IF_ERROR(CheckCount(out.count));
  out.buffer = MakeBuffer(request.size(), out.count);
  char* end = out.buffer.get();
  MessageScanner scanner;
  WireCursor cursor(request);
  bool first = true;
  while (!cursor.AtEnd()) {
    uint32_t tag = 0;
    std::string_view message;
    cursor.Tag(&tag);
    if (tag != kMessages) {
      cursor.Skip(tag, kRequestDepth);
      continue;
    }
    cursor.Bytes(&message);
    MR_RETURN_IF_ERROR(scanner.Scan(message));
    if (first) {
      out.ordering_key = scanner.ordering_key();
      first = false;
    } else if (scanner.ordering_key() != out.ordering_key) {
      return InvalidArgument(
          "In a single publish request, all messages must have the same ordering key.");
    }
    end = scanner.Write(end);
  }
  out.size = end - out.buffer.get();
  return out;
}

StatusOr<ScannedPublish> ScanMessages(const std::vector<SharedBytes>& messages) {
  ScannedPublish out;
  size_t bytes = 0;
  for (const SharedBytes& message : messages) bytes += message.size();
  out.buffer = MakeBuffer(bytes, messages.size());
  char* end = out.buffer.get();
  MessageScanner scanner;
  for (const SharedBytes& message : messages) {
    MR_RETURN_IF_ERROR(scanner.Scan(message.view()));
    if (out.count++ == 0) out.ordering_key = scanner.ordering_key();
    end = scanner.Write(end);
  }
  out.size = end - out.buffer.get();
  return out;
}

}  // namespace millrace::pubsub
