#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/format.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/device_guard.h"

namespace etrt {

using internal::cuda_status;

namespace {

/// Freed memory that the pool keeps for the next allocation when the host synchronises.
/// TensorRT and others allocate apart from the pool, so it must not keep much.
constexpr std::uint64_t kKept = std::uint64_t{64} << 20;

}  // namespace

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(int index) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(index));
  if (Status s = device->open(); !s) return s;
  return device;
}

Status CudaDevice::open() {
  const CudaDeviceGuard guard(index_);
  if (!guard.ok()) return guard.status();
  int pools = 0;
  if (Status s = cuda_status(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index_),
                             "asking for memory pools");
      !s) {
    return s;
  }
  if (pools == 0) {
    return {
        Code::kUnsupported,
        formatted(
            "cuda:{} has no stream-ordered memory pools (cudaMallocAsync), which etrt needs: use a driver "
            "or virtual GPU profile that offers them",
            index_)};
  }
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index_;
  if (Status s = cuda_status(cudaMemPoolCreate(&pool_, &properties), "creating a memory pool"); !s) return s;
  std::uint64_t kept = kKept;
  if (Status s = cuda_status(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept),
                             "setting up a memory pool");
      !s) {
    return s;
  }
  if (Status s = cuda_status(cudaStreamCreateWithFlags(&freer_, cudaStreamNonBlocking), "creating a stream");
      !s) {
    return s;
  }
  return cuda_status(cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming), "creating an event");
}

CudaDevice::~CudaDevice() {
  const CudaDeviceGuard guard(index_);
  if (passed_ != nullptr) (void)cudaEventDestroy(passed_);
  if (freer_ != nullptr) (void)cudaStreamDestroy(freer_);
  if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
}

cudaError_t CudaDevice::allocate_from_pool(void** data, std::size_t bytes, cudaStream_t stream) {
  cudaError_t error = cudaMallocFromPoolAsync(data, bytes, pool_, stream);
  if (error != cudaErrorMemoryAllocation) return error;
  (void)cudaGetLastError();
  // What has been freed may still be waiting for its streams, or be kept in pieces.
  error = cudaStreamSynchronize(freer_);
  if (error == cudaSuccess) error = cudaMemPoolTrimTo(pool_, 0);
  return error == cudaSuccess ? cudaMallocFromPoolAsync(data, bytes, pool_, stream) : error;
}

Result<Buffer> CudaDevice::allocate(std::size_t bytes, Stream& stream) {
  if (bytes == 0) return Buffer(*this, nullptr, 0);
  if (&stream.device() != this) {
    return Status(Code::kInvalidArgument, formatted("memory of cuda:{} can't be allocated on a stream of {}",
                                                    index_, to_string(stream.device().id())));
  }
  const CudaDeviceGuard guard(index_);
  if (!guard.ok()) return guard.status();
  void* data = nullptr;
  const cudaError_t error =
      allocate_from_pool(&data, bytes, static_cast<cudaStream_t>(stream.native_handle()));
  if (error == cudaErrorMemoryAllocation) {
    std::size_t free = 0;
    std::size_t total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free, &total);
    return Status(
        Code::kOutOfMemory,
        formatted("cuda:{} has no {} bytes left: {} of its {} bytes are free. Destroy sessions, choose a "
                  "smaller cache capacity, or free memory of other programs on this GPU",
                  index_, bytes, free, total));
  }
  if (Status s = cuda_status(error, formatted("allocating {} bytes", bytes)); !s) return s;
  return Buffer(*this, data, bytes);
}

Result<Buffer> CudaDevice::allocate_zeroed(std::size_t bytes, Stream& stream) {
  Result<Buffer> buffer = allocate(bytes, stream);
  if (!buffer) return buffer;
  if (Status s = stream.fill(buffer->data(), 0, bytes); !s) return s;
  return buffer;
}

Result<Buffer> CudaDevice::allocate_staging(std::size_t bytes) {
  if (bytes == 0) return Buffer(*this, nullptr, 0);
  const CudaDeviceGuard guard(index_);
  if (!guard.ok()) return guard.status();
  const std::lock_guard lock(mutex_);
  void* data = nullptr;
  const cudaError_t error = staging_.allocate(bytes, &data);
  if (Status s = cuda_status(error, formatted("allocating {} bytes of pinned host memory", bytes)); !s)
    return s;
  return Buffer(*this, data, bytes);
}

Result<std::unique_ptr<Stream>> CudaDevice::create_stream() {
  Result<std::unique_ptr<CudaStream>> stream = CudaStream::create(*this);
  if (!stream) return stream.status();
  return std::unique_ptr<Stream>(std::move(*stream));
}

Result<std::unique_ptr<Stream>> CudaDevice::borrow_stream(void* native) {
  return std::unique_ptr<Stream>(CudaStream::borrow(*this, static_cast<cudaStream_t>(native)));
}

Result<std::unique_ptr<Event>> CudaDevice::create_event() {
  Result<std::unique_ptr<CudaEvent>> event = CudaEvent::create(*this);
  if (!event) return event.status();
  return std::unique_ptr<Event>(std::move(*event));
}

void CudaDevice::add_stream(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(&stream);
}

void CudaDevice::remove_stream(CudaStream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, &stream);
}

cudaError_t CudaDevice::order_frees(Event* after) {
  if (after != nullptr) {
    const CudaEvent* event = as_cuda_event(*after, *this);
    if (event != nullptr) return cudaStreamWaitEvent(freer_, event->handle(), 0);
  }
  cudaError_t error = cudaSuccess;
  for (CudaStream* stream : streams_) {
    if (error == cudaSuccess)
      error = cudaEventRecord(passed_, static_cast<cudaStream_t>(stream->native_handle()));
    if (error == cudaSuccess) error = cudaStreamWaitEvent(freer_, passed_, 0);
  }
  return error;
}

void CudaDevice::free(void* data, std::size_t /*bytes*/, Event* after) noexcept {
  const CudaDeviceGuard guard(index_);
  const std::lock_guard lock(mutex_);
  cudaError_t error = order_frees(after);
  if (error == cudaSuccess)
    error = staging_.owns(data) ? staging_.retire(data, freer_) : cudaFreeAsync(data, freer_);
  // A device that has failed answers everything with its error, and its memory goes with the process.
  (void)cuda_status(error, "freeing memory");
}

}  // namespace etrt
