#pragma once

#include "device/device.h"

namespace etrt {

/// The stream that the caller has selected on this thread for runs on `device`: by
/// StreamScope, else by ExecuTorch's CallerStreamGuard where that extension is loaded; nullptr
/// if none. Valid until the selection ends. Errors: kDevice.
Result<Stream*> caller_stream(Device& device);

}  // namespace etrt
