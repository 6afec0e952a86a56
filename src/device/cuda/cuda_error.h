#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "etrt/status.h"

namespace etrt::internal {

/// Ok, or the error with its name and CUDA's text: kOutOfMemory for cudaErrorMemoryAllocation,
/// else kDevice. `what` completes "cuda: <what>: ...". Says so if CUDA refuses all further work
/// in this process. Removes the error from the calling thread's cudaGetLastError(), so that
/// nobody else reads it as theirs.
Status cuda_status(cudaError_t error, std::string_view what);

/// CUDA answers every later call of the process with this error.
bool is_sticky(cudaError_t error) noexcept;

}  // namespace etrt::internal
