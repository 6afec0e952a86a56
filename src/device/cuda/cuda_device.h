#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/pinned_pool.h"
#include "device/device.h"

namespace etrt {

class CudaStream;

/// One GPU. Memory comes from a stream-ordered pool of its own; pinned host memory serves
/// as staging. Freeing memory doesn't make the host wait, but for staging of more than 64 MiB.
class CudaDevice final : public Device {
 public:
  /// `index` is a CUDA ordinal that is there. Errors: kDevice; kUnsupported for a GPU
  /// without memory pools.
  static Result<std::unique_ptr<CudaDevice>> create(int index);
  ~CudaDevice() override;

  int index() const noexcept { return index_; }
  DeviceId id() const noexcept override { return {DeviceType::kCuda, index_}; }

  /// The least of what is free now: a block that other streams' frees are still waiting
  /// for is waited for before memory is said to have run out.
  Result<Buffer> allocate_zeroed(std::size_t bytes, Stream& stream) override;
  Result<Buffer> allocate(std::size_t bytes, Stream& stream) override;
  Result<Buffer> allocate_staging(std::size_t bytes) override;
  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Event>> create_event() override;
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override;

  /// For CudaStream: the streams whose queued work may use any memory of the device.
  void add_stream(CudaStream& stream);
  void remove_stream(CudaStream& stream) noexcept;

 protected:
  void free(void* data, std::size_t bytes, Event* after) noexcept override;

 private:
  explicit CudaDevice(int index) noexcept : index_(index) {}
  Status open();
  cudaError_t allocate_from_pool(void** data, std::size_t bytes, cudaStream_t stream);
  /// Later work of freer_ runs after `after`, or all work queued so far. Under mutex_.
  cudaError_t order_frees(Event* after);

  const int index_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t freer_ = nullptr;  ///< Frees memory once the streams have passed its last use.
  cudaEvent_t passed_ = nullptr;  ///< Guarded by mutex_.
  std::mutex mutex_;
  std::vector<CudaStream*> streams_;  ///< Guarded by mutex_.
  PinnedPool staging_;                ///< Guarded by mutex_.
};

}  // namespace etrt
