#include "pubsub/catalog/field_checks.h"

#include <fmt/format.h>
#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/utf8.h"

namespace millrace::pubsub {
namespace {

using ProtoDuration = google::protobuf::Duration;

constexpr size_t kLabelsMax = 64;
constexpr size_t kLabelCharactersMax = 63;
constexpr std::string_view kKeyPattern = R"([\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62})";
constexpr std::string_view kValuePattern = R"([\p{Ll}\p{Lo}\p{N}_-]{0,63})";

bool IsNormal(const ProtoDuration& d) {
  constexpr int64_t kSecondsMax = 315'576'000'000;  // ten thousand years, the bound of the type
  return d.seconds() >= -kSecondsMax && d.seconds() <= kSecondsMax && d.nanos() > -1'000'000'000 &&
         d.nanos() < 1'000'000'000 &&
         (d.seconds() == 0 || d.nanos() == 0 || (d.seconds() < 0) == (d.nanos() < 0));
}

bool Less(const ProtoDuration& a, const ProtoDuration& b) {
  return std::make_tuple(a.seconds(), a.nanos()) < std::make_tuple(b.seconds(), b.nanos());
}

// Unicode properties of characters outside ASCII, from the C library's own tables.
locale_t Unicode() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

bool IsLowerOrOtherLetter(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  locale_t unicode = Unicode();
  return !unicode || (iswalpha_l(c, unicode) && !iswupper_l(c, unicode));
}

bool IsLabelCharacter(uint32_t c) {
  if (c < 0x80) return IsLowerOrOtherLetter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
  locale_t unicode = Unicode();
  return !unicode || (iswalnum_l(c, unicode) && !iswupper_l(c, unicode));
}

struct Characters {
  std::vector<uint32_t> points;
  std::vector<std::string_view> texts;
};

Characters Split(std::string_view text) {
  Characters out;
  while (!text.empty()) {
    std::string_view before = text;
    out.points.push_back(TakeCodePoint(&text));
    out.texts.push_back(before.substr(0, before.size() - text.size()));
  }
  return out;
}

Status InvalidLabels(std::string_view detail) {
  return InvalidArgumentNamed(fmt::format("Invalid labels: Invalid field {}", detail));
}

Status CheckLabelKey(const std::string& key) {
  if (key.empty()) return InvalidLabels(R"("labels"; key "" is empty)");
  Characters characters = Split(key);
  std::string refused = fmt::format(
      R"("labels"; key "{}" does not conform to regular expression "{}")", key, kKeyPattern);
  if (!IsLowerOrOtherLetter(characters.points[0])) {
    return InvalidLabels(fmt::format(R"({}; first character "{}" is not a non-uppercased letter )"
                                     "(Unicode character class Ll or Lo)",
                                     refused, characters.texts[0]));
  }
  for (size_t i = 1; i < characters.points.size(); ++i) {
    if (IsLabelCharacter(characters.points[i])) continue;
    return InvalidLabels(
        fmt::format(R"({}; character "{}" is not a non-uppercased letter, a number, "_" or "-")",
                    refused, characters.texts[i]));
  }
  if (characters.points.size() > kLabelCharactersMax) {
    return InvalidLabels(
        fmt::format(R"("labels"; key "{}" exceeds maximum key length {} with a length of {})", key,
                    kLabelCharactersMax, characters.points.size()));
  }
  return OkStatus();
}

Status CheckLabelValue(const std::string& key, const std::string& value) {
  Characters characters = Split(value);
  if (characters.points.size() > kLabelCharactersMax) {
    return InvalidLabels(fmt::format(
        R"("labels.{}"; value "{}" exceeds maximum value length {} with a length of {})", key,
        value, kLabelCharactersMax, characters.points.size()));
  }
  for (size_t i = 0; i < characters.points.size(); ++i) {
    if (IsLabelCharacter(characters.points[i])) continue;
    return InvalidLabels(
        fmt::format(R"("labels.{}"; value "{}" does not conform to regular expression "{}"; )"
                    R"(character "{}" is not a non-uppercased letter, a number, "_" or "-")",
                    key, value, kValuePattern, characters.texts[i]));
  }
  return OkStatus();
}

}  // namespace

std::string DurationText(const ProtoDuration& duration) {
  bool negative = duration.seconds() < 0 || duration.nanos() < 0;
  int64_t seconds = std::abs(duration.seconds());
  int64_t nanos = std::abs(duration.nanos());
  std::string out = negative ? "-" : "";
  if (seconds >= 3600) out += fmt::format("{}h", seconds / 3600);
  if (seconds / 60 % 60 > 0) out += fmt::format("{}m", seconds / 60 % 60);
  if (nanos > 0) {
    std::string fraction = fmt::format("{:09}", nanos);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    out += fmt::format("{}.{}s", seconds % 60, fraction);
  } else if (seconds % 60 > 0 || seconds == 0) {
    out += fmt::format("{}s", seconds % 60);
  }
  return out;
}

Status CheckDurationRange(std::string_view name, const ProtoDuration& duration,
                          const ProtoDuration& min, const ProtoDuration& max) {
  if (!IsNormal(duration)) return InvalidArgumentNamed(name);
  if (Less(duration, min) || Less(max, duration)) {
    return InvalidArgument(
        fmt::format("The value for {} is out of bounds. You passed {} in the request, but the "
                    "value must be between {} and {}.",
                    name, DurationText(duration), DurationText(min), DurationText(max)));
  }
  return OkStatus();
}

Status CheckDurationMin(std::string_view name, const ProtoDuration& duration,
                        const ProtoDuration& min) {
  if (!IsNormal(duration)) return InvalidArgumentNamed(name);
  if (Less(duration, min)) {
    return InvalidArgument(fmt::format(
        "The value for {} is too small. You passed {} in the request, but the minimum value is {}.",
        name, DurationText(duration), DurationText(min)));
  }
  return OkStatus();
}

Duration ToDuration(const ProtoDuration& duration) {
  return Duration(duration.seconds() * 1'000'000 + duration.nanos() / 1000);
}

ProtoDuration ToProto(Duration duration) {
  ProtoDuration out;
  out.set_seconds(duration.count() / 1'000'000);
  out.set_nanos(static_cast<int32_t>(duration.count() % 1'000'000 * 1000));
  return out;
}

Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > kLabelsMax) {
    return InvalidLabels(
        fmt::format(R"("labels"; {} labels exceed the maximum of {})", labels.size(), kLabelsMax));
  }
  for (const auto& [key, value] : labels) {
    MR_RETURN_IF_ERROR(CheckLabelKey(key));
    MR_RETURN_IF_ERROR(CheckLabelValue(key, value));
  }
  return OkStatus();
}

Status InvalidArgumentNamed(std::string_view argument) {
  return InvalidArgument(
      fmt::format("You have passed an invalid argument to the service (argument={}).", argument));
}

Status UnsupportedField(std::string_view resource, std::string_view field) {
  return Unimplemented(fmt::format(
      "This server does not support the field '{}' of {}: leave it unset or at its default.", field,
      resource));
}

}  // namespace millrace::pubsub
