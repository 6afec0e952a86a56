#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace etrt {

class CudaDevice;

/// A CUDA event without timing.
class CudaEvent final : public Event {
 public:
  static Result<std::unique_ptr<CudaEvent>> create(CudaDevice& device);
  ~CudaEvent() override;

  /// Also true after a device fault, which synchronize() reports.
  bool done() const override;
  Status synchronize() override;

  CudaDevice& device() const noexcept { return device_; }
  cudaEvent_t handle() const noexcept { return event_; }

 private:
  CudaEvent(CudaDevice& device, cudaEvent_t event) noexcept : device_(device), event_(event) {}

  CudaDevice& device_;
  cudaEvent_t event_;
};

/// A CUDA stream: its own, which doesn't synchronise with the legacy default stream, or a
/// borrowed one. The device knows it until it ends, so as to free memory after its work.
class CudaStream final : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> create(CudaDevice& device);
  /// See Device::borrow_stream().
  static std::unique_ptr<CudaStream> borrow(CudaDevice& device, cudaStream_t stream);
  ~CudaStream() override;

  Device& device() const override;
  Status copy(void* dst, const void* src, std::size_t bytes) override;
  Status fill(void* dst, std::uint8_t value, std::size_t bytes) override;
  Status record(Event& event) override;
  Status wait(Event& event) override;
  Status synchronize() override;
  void* native_handle() const noexcept override { return stream_; }

 private:
  CudaStream(CudaDevice& device, cudaStream_t stream, bool owned) noexcept
      : device_(device), stream_(stream), owned_(owned) {}

  CudaDevice& device_;
  cudaStream_t stream_;
  bool owned_;
};

/// nullptr for an event of another device.
CudaEvent* as_cuda_event(Event& event, const CudaDevice& device) noexcept;

}  // namespace etrt
