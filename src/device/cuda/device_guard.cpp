#include "device/cuda/device_guard.h"

#include <cuda_runtime_api.h>

#include "base/format.h"
#include "device/cuda/cuda_error.h"

namespace etrt {

CudaDeviceGuard::CudaDeviceGuard(int index) noexcept : index_(index) {
  int current = -1;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess && current != index) {
    error = cudaSetDevice(index);
    if (error == cudaSuccess) previous_ = current;
  }
  error_ = static_cast<int>(error);
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

Status CudaDeviceGuard::status() const {
  return internal::cuda_status(static_cast<cudaError_t>(error_),
                               formatted("making device {} current", index_));
}

}  // namespace etrt
