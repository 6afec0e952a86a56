#pragma once

#include <string_view>

namespace etrt {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

/// Where log lines go; default: standard error, one line "etrt: error: ...".
/// Thread-safe. `sink` must live until replaced; nullptr restores the default.
using LogSink = void (*)(LogLevel level, std::string_view message);
void set_log_sink(LogSink sink) noexcept;

/// Lines above the level in ETRT_LOG (error, warning, info, debug; default warning)
/// are dropped.
bool log_enabled(LogLevel level) noexcept;
void log(LogLevel level, std::string_view message);

}  // namespace etrt
