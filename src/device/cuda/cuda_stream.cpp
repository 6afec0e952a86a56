#include "device/cuda/cuda_stream.h"

#include <typeinfo>

#include "base/format.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/device_guard.h"

namespace etrt {

using internal::cuda_status;

CudaEvent* as_cuda_event(Event& event, const CudaDevice& device) noexcept {
  if (typeid(event) != typeid(CudaEvent)) return nullptr;
  auto* mine = static_cast<CudaEvent*>(&event);
  return &mine->device() == &device ? mine : nullptr;
}

Result<std::unique_ptr<CudaEvent>> CudaEvent::create(CudaDevice& device) {
  const CudaDeviceGuard guard(device.index());
  if (!guard.ok()) return guard.status();
  cudaEvent_t event = nullptr;
  if (Status s = cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
      !s) {
    return s;
  }
  return std::unique_ptr<CudaEvent>(new CudaEvent(device, event));
}

CudaEvent::~CudaEvent() {
  const CudaDeviceGuard guard(device_.index());
  (void)cuda_status(cudaEventDestroy(event_), "destroying an event");
}

bool CudaEvent::done() const {
  const CudaDeviceGuard guard(device_.index());
  const cudaError_t error = cudaEventQuery(event_);
  if (error != cudaErrorNotReady) return true;
  if (cudaPeekAtLastError() == error) (void)cudaGetLastError();
  return false;
}

Status CudaEvent::synchronize() {
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  return cuda_status(cudaEventSynchronize(event_), "waiting for an event");
}

Result<std::unique_ptr<CudaStream>> CudaStream::create(CudaDevice& device) {
  const CudaDeviceGuard guard(device.index());
  if (!guard.ok()) return guard.status();
  cudaStream_t stream = nullptr;
  if (Status s = cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
      !s) {
    return s;
  }
  std::unique_ptr<CudaStream> made(new CudaStream(device, stream, true));
  device.add_stream(*made);
  return made;
}

std::unique_ptr<CudaStream> CudaStream::borrow(CudaDevice& device, cudaStream_t stream) {
  std::unique_ptr<CudaStream> made(new CudaStream(device, stream, false));
  device.add_stream(*made);
  return made;
}

CudaStream::~CudaStream() {
  if (!owned_) {
    device_.remove_stream(*this);
    return;
  }
  const CudaDeviceGuard guard(device_.index());
  (void)cuda_status(cudaStreamSynchronize(stream_), "waiting for a stream");
  device_.remove_stream(*this);
  (void)cuda_status(cudaStreamDestroy(stream_), "destroying a stream");
}

Device& CudaStream::device() const { return device_; }

Status CudaStream::copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return {};
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_);
  if (error == cudaSuccess) return {};
  return cuda_status(error, formatted("copying {} bytes from {} to {}", bytes, src, dst));
}

Status CudaStream::fill(void* dst, std::uint8_t value, std::size_t bytes) {
  if (bytes == 0) return {};
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  const cudaError_t error = cudaMemsetAsync(dst, value, bytes, stream_);
  if (error == cudaSuccess) return {};
  return cuda_status(error, formatted("filling {} bytes at {}", bytes, dst));
}

namespace {

Status foreign_event(const CudaDevice& device) {
  return {Code::kInvalidArgument,
          formatted("a stream of {} was given an event of another device: create it on {}",
                    to_string(device.id()), to_string(device.id()))};
}

}  // namespace

Status CudaStream::record(Event& event) {
  const CudaEvent* mine = as_cuda_event(event, device_);
  if (mine == nullptr) return foreign_event(device_);
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  return cuda_status(cudaEventRecord(mine->handle(), stream_), "recording an event");
}

Status CudaStream::wait(Event& event) {
  const CudaEvent* mine = as_cuda_event(event, device_);
  if (mine == nullptr) return foreign_event(device_);
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  return cuda_status(cudaStreamWaitEvent(stream_, mine->handle(), 0), "making a stream wait for an event");
}

Status CudaStream::synchronize() {
  const CudaDeviceGuard guard(device_.index());
  if (!guard.ok()) return guard.status();
  return cuda_status(cudaStreamSynchronize(stream_), "waiting for a stream");
}

}  // namespace etrt
