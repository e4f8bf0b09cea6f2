// Logging: one line an event, to stderr. MR_LOG(kInfo, "topic {} created", name) formats by fmt.
// Errors: someone must act. Warnings: something was lost or slowed. Info: life of the process and
// its jobs. Debug: the rest.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace millrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void WriteLog(LogLevel level, std::string_view text);
// Logs, flushes and aborts: for broken invariants and failed writes.
[[noreturn]] void Die(const char* file, int line, std::string_view text);

}  // namespace millrace

#define MR_LOG(level, ...)                                                           \
  do {                                                                               \
    if (::millrace::LogEnabled(::millrace::LogLevel::level))                         \
      ::millrace::WriteLog(::millrace::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
  } while (false)
// A broken invariant ends the process.
#define MR_CHECK(condition)                                                             \
  do {                                                                                  \
    if (!(condition)) ::millrace::Die(__FILE__, __LINE__, "CHECK failed: " #condition); \
  } while (false)
#define MR_DIE(...) ::millrace::Die(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__))
