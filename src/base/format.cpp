#define FMT_HEADER_ONLY
#include "base/format.h"

namespace etrt {

std::string formatted_arguments(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += ", ";
    text += item;
  }
  return text;
}

}  // namespace etrt
