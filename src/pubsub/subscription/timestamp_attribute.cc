#include "pubsub/subscription/timestamp_attribute.h"

#include <limits>

#include "storage/encoding.h"

namespace millrace::pubsub {
namespace {

constexpr uint64_t kAttributesTag = 2 << 3 | 2;  // map<string, string>, length-delimited
constexpr uint64_t kKeyTag = 1 << 3 | 2;
constexpr uint64_t kValueTag = 2 << 3 | 2;

bool Skip(storage::ByteReader& reader, uint64_t tag) {
  switch (tag & 7) {
    case 0:
      reader.Varint();
      return reader.ok();
    case 1:
      reader.Bytes(8);
      return reader.ok();
    case 2:
      reader.String();
      return reader.ok();
    case 5:
      reader.Bytes(4);
      return reader.ok();
    default:
      return false;
  }
}

// Exactly `digits` digits at the front of `text`, taken off it; -1 if there are not as many.
int TakeNumber(std::string_view& text, size_t digits) {
  if (text.size() < digits) return -1;
  int value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool TakeOne(std::string_view& text, char upper, char lower) {
  if (text.empty() || (text.front() != upper && text.front() != lower)) return false;
  text.remove_prefix(1);
  return true;
}

bool IsLeap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

int DaysOf(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && IsLeap(year) ? 29 : kDays[month - 1];
}

int64_t DaysSinceEpoch(int year, int month, int day) {
  // Years start in March, so that the leap day comes last.
  int64_t y = month <= 2 ? year - 1 : year;
  int64_t m = month <= 2 ? month + 9 : month - 3;
  int64_t leaps = y / 4 - y / 100 + y / 400;
  return y * 365 + leaps + (m * 153 + 2) / 5 + day - 1 - 719468;
}

std::optional<int64_t> ParseRfc3339(std::string_view text) {
  int year = TakeNumber(text, 4);
  if (year < 0 || !TakeOne(text, '-', '-')) return std::nullopt;
  int month = TakeNumber(text, 2);
  if (month < 1 || month > 12 || !TakeOne(text, '-', '-')) return std::nullopt;
  int day = TakeNumber(text, 2);
  if (day < 1 || day > DaysOf(year, month) || !TakeOne(text, 'T', 't')) return std::nullopt;
  int hour = TakeNumber(text, 2);
  if (hour < 0 || hour > 23 || !TakeOne(text, ':', ':')) return std::nullopt;
  int minute = TakeNumber(text, 2);
  if (minute < 0 || minute > 59 || !TakeOne(text, ':', ':')) return std::nullopt;
  int second = TakeNumber(text, 2);
  if (second < 0 || second > 60) return std::nullopt;  // 60: a leap second
  int64_t millis = 0;
  if (TakeOne(text, '.', '.')) {
    int scale = 100;
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1)) {
      millis += scale * (text.front() - '0');
      scale /= 10;
    }
  }
  if (!TakeOne(text, 'Z', 'z') || !text.empty()) return std::nullopt;
  int64_t seconds = DaysSinceEpoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
  return seconds * 1000 + millis;
}

}  // namespace

std::optional<std::string_view> FindAttribute(std::string_view wire, std::string_view name) {
  storage::ByteReader reader(wire);
  std::optional<std::string_view> found;
  while (!reader.empty()) {
    uint64_t tag = reader.Varint();
    if (tag != kAttributesTag) {
      if (!Skip(reader, tag)) return found;
      continue;
    }
    storage::ByteReader entry(reader.String());
    if (!reader.ok()) return found;
    std::string_view key, value;
    while (!entry.empty()) {
      uint64_t entry_tag = entry.Varint();
      if (entry_tag == kKeyTag) {
        key = entry.String();
      } else if (entry_tag == kValueTag) {
        value = entry.String();
      } else if (!Skip(entry, entry_tag)) {
        break;
      }
    }
    if (entry.ok() && key == name) found = value;
  }
  return found;
}

std::optional<int64_t> ParseEventTimeMs(std::string_view text) {
  std::string_view digits = text;
  bool negative = !digits.empty() && digits.front() == '-';
  if (negative) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  int64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return negative ? std::nullopt : ParseRfc3339(text);
    if (value > (std::numeric_limits<int64_t>::max() - (c - '0')) / 10) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return negative ? -value : value;
}

int64_t EventTimeMs(std::string_view wire, std::string_view attribute, WallTime publish_time) {
  if (std::optional<std::string_view> text = FindAttribute(wire, attribute)) {
    if (std::optional<int64_t> ms = ParseEventTimeMs(*text)) return *ms;
  }
  int64_t ms = publish_time.micros / 1000;
  return publish_time.micros % 1000 < 0 ? ms - 1 : ms;
}

}  // namespace millrace::pubsub
