#include "device/cuda/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace etrt {

PinnedPool::~PinnedPool() {
  for (const auto& [data, block] : used_) destroy(block);
  for (const Block& block : retired_) destroy(block);
}

void PinnedPool::destroy(const Block& block) noexcept {
  if (block.free != nullptr) (void)cudaEventDestroy(block.free);
  (void)cudaFreeHost(block.data);
}

cudaError_t PinnedPool::allocate(std::size_t bytes, void** data) {
  constexpr std::size_t kLeast = 4096;
  // More than CUDA itself may take for an invalid value.
  if (bytes > std::size_t{1} << 62) return cudaErrorMemoryAllocation;
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeast));
  const auto block = std::find_if(retired_.begin(), retired_.end(), [&](const Block& b) {
    return b.bytes == size && cudaEventQuery(b.free) == cudaSuccess;
  });
  (void)cudaGetLastError();  // cudaErrorNotReady of a block that isn't free yet.
  if (block != retired_.end()) {
    *data = block->data;
    used_.emplace(block->data, *block);
    retired_.erase(block);
    return cudaSuccess;
  }
  Block made;
  made.bytes = size;
  cudaError_t error = cudaHostAlloc(&made.data, size, cudaHostAllocPortable);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&made.free, cudaEventDisableTiming);
  if (error != cudaSuccess) {
    if (made.data != nullptr) (void)cudaFreeHost(made.data);
    return error == cudaErrorInvalidValue ? cudaErrorMemoryAllocation : error;
  }
  *data = made.data;
  used_.emplace(made.data, made);
  return cudaSuccess;
}

cudaError_t PinnedPool::retire(void* data, cudaStream_t last) {
  const auto it = used_.find(data);
  const Block block = it->second;
  used_.erase(it);
  cudaError_t error = cudaEventRecord(block.free, last);
  if (error != cudaSuccess || block.bytes <= kKept) {
    retired_.push_back(block);
    return error;
  }
  error = cudaEventSynchronize(block.free);
  destroy(block);
  return error;
}

}  // namespace etrt
