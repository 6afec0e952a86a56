#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

/// What another delegate would launch: follows the contract of ExecuTorch's CUDA delegate, all
/// arguments in device memory and work on the caller's stream.
namespace etrt::test {

/// Adds 1 to each of `count` floats, after having spun for `cycles` of the GPU's clock.
cudaError_t add_one(float* values, std::size_t count, long long cycles, cudaStream_t stream);

/// Fails on the GPU with cudaErrorIllegalAddress, after which CUDA refuses all work of the process.
cudaError_t write_to_nowhere(cudaStream_t stream);

/// rows [2, n, 4] of float32 to positions [first, first + n) of cache [2, 16, 4].
cudaError_t append(float* cache, const float* rows, int first, int n, cudaStream_t stream);

}  // namespace etrt::test
