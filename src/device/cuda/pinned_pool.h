#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace etrt {

/// Pinned host memory of one device. Blocks are kept and handed out again: pinning is slow,
/// and cudaFreeHost() waits for the device. Thread rule: one thread at a time, with the
/// device current.
class PinnedPool {
 public:
  /// Larger blocks aren't kept; retiring them waits for `last`.
  static constexpr std::size_t kKept = std::size_t{64} << 20;

  PinnedPool() = default;
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  /// cudaErrorMemoryAllocation if there isn't as much.
  cudaError_t allocate(std::size_t bytes, void** data);
  bool owns(void* data) const { return used_.contains(data); }
  /// The block is free once the work that `last` has been given so far is done.
  cudaError_t retire(void* data, cudaStream_t last);

 private:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    cudaEvent_t free = nullptr;
  };
  static void destroy(const Block& block) noexcept;

  std::unordered_map<void*, Block> used_;
  std::vector<Block> retired_;
};

}  // namespace etrt
