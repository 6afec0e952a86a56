#include "device/host/host_memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>

#include "device/device.h"

namespace etrt::internal {
namespace {

// From here on a block is mapped. malloc's own zero-filling would do the same at first,
// but touches every page of a block that it hands out a second time.
constexpr std::size_t kMapFrom = std::size_t{256} << 10;

#ifdef __SANITIZE_ADDRESS__
// AddressSanitizer doesn't watch mapped memory: it is told of a forbidden zone behind each block.
constexpr std::size_t kGuard = 4096;
#else
constexpr std::size_t kGuard = 0;
#endif

}  // namespace

void* allocate_host_memory(std::size_t bytes, bool zeroed) noexcept {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
  if (bytes < kMapFrom) {
    const std::size_t rounded = (bytes + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
    void* data = std::aligned_alloc(Device::kAlignment, rounded);
    if (data != nullptr && zeroed) std::memset(data, 0, bytes);
    return data;
  }
  void* data = mmap(nullptr, bytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  ASAN_POISON_MEMORY_REGION(static_cast<std::byte*>(data) + bytes, kGuard);
  return data;
}

void free_host_memory(void* data, std::size_t bytes) noexcept {
  if (bytes < kMapFrom) {
    std::free(data);
    return;
  }
  ASAN_UNPOISON_MEMORY_REGION(static_cast<std::byte*>(data) + bytes, kGuard);
  munmap(data, bytes + kGuard);
}

}  // namespace etrt::internal
