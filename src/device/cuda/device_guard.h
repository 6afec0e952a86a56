#pragma once

#include "etrt/status.h"

namespace etrt {

/// Makes a CUDA device the calling thread's current one, and the former one again at the
/// end. Free of cost where it is that already. No CUDA header, for those who call
/// libraries that work on the current device.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int index) noexcept;
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

  bool ok() const noexcept { return error_ == 0; }
  /// kDevice if the device can't be made current; nothing has changed then.
  Status status() const;

 private:
  int index_;
  int error_ = 0;      ///< cudaError_t
  int previous_ = -1;  ///< -1: nothing to restore.
};

}  // namespace etrt
