#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

namespace etrt {

/// The non-template part of formatted().
std::string formatted_arguments(fmt::string_view text, fmt::format_args arguments);

/// As fmt::format. fmt is compiled once, in format.cpp, and no library of it is needed: in every file that
/// writes a message it would be most of the compile time.
template <typename... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  return formatted_arguments(text, fmt::make_format_args(args...));
}

/// "a, b, c"
std::string joined(const std::vector<std::string>& items);

}  // namespace etrt
