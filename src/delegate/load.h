#pragma once

#include <memory>
#include <span>

#include <executorch/runtime/core/named_data_map.h>

#include "delegate/handle.h"
#include "etrt/status.h"

namespace etrt {

/// Options that a program's compile specs or the caller of load() give.
struct LoadOptions {
  std::int64_t weight_streaming_budget = -1;
};

/// Makes a handle of a delegate's blob: validates it, finds or loads its engine, and
/// resolves names to indices. `blob_bytes` and `data` aren't needed afterwards.
Result<std::unique_ptr<Handle>> load_handle(std::span<const std::byte> blob_bytes,
                                            const executorch::runtime::NamedDataMap* data, const char* method,
                                            const LoadOptions& options);

}  // namespace etrt
