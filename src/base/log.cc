#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>

namespace millrace {
namespace {

std::atomic<LogLevel> current_level{LogLevel::kInfo};

spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("millrace", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { current_level = level; }
bool LogEnabled(LogLevel level) { return level >= current_level.load(std::memory_order_relaxed); }

void WriteLog(LogLevel level, std::string_view text) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err};
  Logger().log(kLevels[static_cast<int>(level)], spdlog::string_view_t(text.data(), text.size()));
}

void Die(const char* file, int line, std::string_view text) {
  WriteLog(LogLevel::kError, fmt::format("{}:{} {}", file, line, text));
  std::abort();
}

}  // namespace millrace
