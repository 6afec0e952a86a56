#pragma once

#include <cuda_runtime_api.h>
#include <executorch/runtime/backend/interface.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "blob/blob.h"

/// The plan "append" of trt_builder through ExecuTorch's BackendInterface:
/// cache float32 [1, 2, 16, 4] gets rows [1, 2, n, 4] at a position; y [1, 2, n, 4] is the sum of
/// the rows up to each new one.
namespace etrt::test {

constexpr std::size_t kCacheFloats = 2 * 16 * 4;

/// Device memory, zeroed.
class DeviceFloats {
 public:
  explicit DeviceFloats(std::size_t count);
  ~DeviceFloats() { (void)cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  float* data() const noexcept { return data_; }
  void set(const std::vector<float>& values);
  std::vector<float> get() const;

 private:
  float* data_ = nullptr;
  std::size_t count_;
};

class AppendDelegate {
 public:
  /// A caller-owned cache is the first argument. `stage`: in host memory, to be copied.
  AppendDelegate(const char* method, Ownership ownership, bool stage = false);
  ~AppendDelegate();
  AppendDelegate(const AppendDelegate&) = delete;
  AppendDelegate& operator=(const AppendDelegate&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  /// rows [1, 2, n, 4] on the host. `cache` is the caller's, on the GPU unless `cache_on_host`.
  /// y, empty after an error.
  std::vector<float> run(const std::vector<float>& rows, std::int32_t position, float* cache = nullptr,
                         bool cache_on_host = false);
  /// With rows and y in device memory: nothing is waited for.
  executorch::runtime::Error queue(float* rows, std::int32_t n, std::int32_t position, float* cache,
                                   float* y);

 private:
  executorch::runtime::BackendInterface* backend_;
  executorch::runtime::DelegateHandle* handle_ = nullptr;
  bool caller_owned_;
};

}  // namespace etrt::test
