#include "device/host/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "device/device.h"

namespace etrt {
namespace {

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HostMemory, LargeBlocksCostWhatIsUsedOfThem) {
  constexpr std::size_t kBlock = std::size_t{1} << 30;
  constexpr std::size_t kUsed = std::size_t{64} << 20;
  Result<std::unique_ptr<Stream>> stream = host_device().create_stream();
  ASSERT_TRUE(stream.ok());
  for (int round = 0; round < 2; ++round) {
    const std::size_t before = resident_bytes();
    Result<Buffer> block = host_device().allocate_zeroed(kBlock, **stream);
    ASSERT_TRUE(block.ok()) << block.status().message();
    EXPECT_LT(resident_bytes(), before + (std::size_t{8} << 20));
    std::memset(block->data(), 1, kUsed);
    EXPECT_GE(resident_bytes(), before + kUsed - (std::size_t{8} << 20));
    EXPECT_LT(resident_bytes(), before + kBlock / 2);  // Sanitizers have memory of their own.
  }
}

TEST(HostMemory, SizesRoundWithoutOverflow) {
  EXPECT_EQ(internal::allocate_host_memory(~std::size_t{0}, true), nullptr);
  EXPECT_EQ(internal::allocate_host_memory(~std::size_t{0} - 255, false), nullptr);
  EXPECT_EQ(internal::allocate_host_memory(~std::size_t{0} / 2, true), nullptr);
}

}  // namespace
}  // namespace etrt
