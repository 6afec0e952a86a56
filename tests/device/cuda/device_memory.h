#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace etrt::test {

/// Bytes of the current GPU's memory that are free, once all work is done.
inline std::size_t free_device_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

/// Holds all memory of the current GPU but for what is too little for anything.
class AllDeviceMemory {
 public:
  AllDeviceMemory() {
    for (std::size_t bytes = std::size_t{32} << 30; bytes >= std::size_t{1} << 20;) {
      void* block = nullptr;
      if (cudaMalloc(&block, bytes) == cudaSuccess) {
        blocks_.push_back(block);
      } else {
        (void)cudaGetLastError();
        bytes /= 2;
      }
    }
  }
  ~AllDeviceMemory() {
    for (void* block : blocks_) EXPECT_EQ(cudaFree(block), cudaSuccess);
  }
  AllDeviceMemory(const AllDeviceMemory&) = delete;
  AllDeviceMemory& operator=(const AllDeviceMemory&) = delete;

 private:
  std::vector<void*> blocks_;
};

}  // namespace etrt::test
