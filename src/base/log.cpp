#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace etrt {

namespace {

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "error";
}

void to_stderr(LogLevel level, std::string_view message) {
  std::string line = "etrt: ";
  line.append(name_of(level)).append(": ").append(message).append("\n");
  std::fputs(line.c_str(), stderr);
}

LogLevel level_from_environment() {
  const char* value = std::getenv("ETRT_LOG");
  const std::string_view wanted = value == nullptr ? "warning" : value;
  for (const LogLevel level : {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (wanted == name_of(level)) return level;
  }
  return LogLevel::kWarning;
}

std::atomic<LogSink> sink{&to_stderr};

}  // namespace

void set_log_sink(LogSink new_sink) noexcept { sink.store(new_sink == nullptr ? &to_stderr : new_sink); }

bool log_enabled(LogLevel level) noexcept {
  static const LogLevel limit = level_from_environment();
  return level <= limit;
}

void log(LogLevel level, std::string_view message) {
  if (log_enabled(level)) sink.load()(level, message);
}

}  // namespace etrt
