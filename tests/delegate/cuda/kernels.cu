#include "delegate/cuda/kernels.h"

namespace etrt::test {

namespace {

__global__ void add_one_kernel(float* values, std::size_t count, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) values[i] += 1;
}

__global__ void append_kernel(float* cache, const float* rows, int first, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < 2 * n * 4; i += static_cast<int>(blockDim.x)) {
    const int head = i / (n * 4);
    const int row = i / 4 % n;
    cache[(head * 16 + first + row) * 4 + i % 4] = rows[i];
  }
}

__global__ void write_to_nowhere_kernel(int* nowhere) { *nowhere = 1; }

}  // namespace

cudaError_t write_to_nowhere(cudaStream_t stream) {
  write_to_nowhere_kernel<<<1, 1, 0, stream>>>(nullptr);
  return cudaGetLastError();
}

cudaError_t add_one(float* values, std::size_t count, long long cycles, cudaStream_t stream) {
  add_one_kernel<<<1, 128, 0, stream>>>(values, count, cycles);
  return cudaGetLastError();
}

cudaError_t append(float* cache, const float* rows, int first, int n, cudaStream_t stream) {
  append_kernel<<<1, 128, 0, stream>>>(cache, rows, first, n);
  return cudaGetLastError();
}

}  // namespace etrt::test
