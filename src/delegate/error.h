#pragma once

#include <executorch/runtime/core/error.h>

#include <string_view>

#include "etrt/status.h"

namespace etrt {

/// What ExecuTorch is told for `status`: logs the message through ExecuTorch's log, keeps
/// it for etrt::last_error() and returns the nearest of ExecuTorch's numbers.
/// `method` may be nullptr.
executorch::runtime::Error report(const Status& status, const char* method);

}  // namespace etrt
