#pragma once

#include <string>

namespace etrt::internal {

/// What etrt::last_error() returns on this thread from now on; "" for none.
void set_last_error(std::string text) noexcept;

}  // namespace etrt::internal
