#pragma once

#include <executorch/runtime/core/named_data_map.h>

#include <memory>
#include <span>

#include "delegate/handle.h"
#include "etrt/status.h"

namespace etrt {

/// Options that a program's compile specs or the caller of load() give.
struct LoadOptions {
  std::int64_t weight_streaming_budget = -1;
  /// Caller-owned caches may be in host memory although the engine is on a device: each run
  /// then copies them there and back (counted in Stats::kv_bytes_copied). Else they are refused.
  bool stage_host_caches = false;
};

/// Makes a handle of a delegate's blob: validates it, finds or loads its engine, and
/// resolves names to indices. `blob_bytes` and `data` aren't needed afterwards.
Result<std::unique_ptr<Handle>> load_handle(std::span<const std::byte> blob_bytes,
                                            const executorch::runtime::NamedDataMap* data, const char* method,
                                            const LoadOptions& options);

}  // namespace etrt
