
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/device.h"

/// The CUDA devices of this machine, for find_device().
namespace etrt {

namespace {

/// 13000 -> "13.0"
std::string version_text(int version) { return formatted("{}.{}", version / 1000, version % 1000 / 10); }

/// Why there isn't a single device.
Status no_devices(cudaError_t error) {
  const Status as_said = internal::cuda_status(error, "counting devices");
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return {
        Code::kDevice,
        formatted(
            "there is no NVIDIA driver on this machine ({}): install one that supports CUDA {}, or export "
            "the model for engine \"cpu\"",
            as_said.message(), version_text(runtime))};
  }
  if (error == cudaErrorInsufficientDriver) {
    return {Code::kDevice,
            formatted("the NVIDIA driver supports CUDA {} at most and etrt was built with CUDA {} ({}): "
                      "install a newer driver, or build etrt with an older CUDA toolkit",
                      version_text(driver), version_text(runtime), as_said.message())};
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return {Code::kDevice,
            formatted("the NVIDIA driver finds no GPU; CUDA_VISIBLE_DEVICES is {}: check that variable "
                      "and nvidia-smi",
                      visible == nullptr ? std::string("not set") : formatted("\"{}\"", visible))};
  }
  return as_said;
}

Result<Device*> find_cuda_device(int index) {
  // Never destroyed: buffers with static lifetime may outlive any order of destruction.
  static std::mutex& mutex = *new std::mutex;
  static auto& devices = *new std::vector<std::unique_ptr<CudaDevice>>;
  const std::lock_guard lock(mutex);
  if (index >= 0 && static_cast<std::size_t>(index) < devices.size() &&
      devices[static_cast<std::size_t>(index)]) {
    return devices[static_cast<std::size_t>(index)].get();
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return no_devices(error);
  if (index < 0 || index >= count) {
    return Status(
        Code::kDevice,
        formatted("there is no cuda:{}: this process sees {} CUDA device{}, numbered from 0. Load the "
                  "program with another device_id, or check CUDA_VISIBLE_DEVICES",
                  index, count, count == 1 ? "" : "s"));
  }
  Result<std::unique_ptr<CudaDevice>> device = CudaDevice::create(index);
  if (!device) return device.status();
  devices.resize(static_cast<std::size_t>(count));
  devices[static_cast<std::size_t>(index)] = std::move(*device);
  return devices[static_cast<std::size_t>(index)].get();
}

[[maybe_unused]] const internal::DeviceProvider previous =
    internal::register_device_provider(DeviceType::kCuda, &find_cuda_device);

}  // namespace

}  // namespace etrt
