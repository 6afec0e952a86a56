#include "etrt/stats.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "base/stats_counters.h"

namespace etrt {
namespace {

TEST(Stats, ADeliberateCopyIsCounted) {
  std::array<char, 64> from{};
  from.fill('x');
  std::array<char, 64> to{};
  const Stats before = stats();
  internal::copy_cache_bytes(to.data(), from.data(), 48);
  EXPECT_EQ(stats().kv_bytes_copied - before.kv_bytes_copied, 48U);
  EXPECT_EQ(to[47], 'x');
  EXPECT_EQ(to[48], '\0');
}

TEST(Stats, CountsFromSeveralThreads) {
  const Stats before = stats();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) internal::add(internal::counters().rebinds);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats().rebinds - before.rebinds, 4000U);
  internal::subtract(internal::counters().rebinds, 4000);
  EXPECT_EQ(stats().rebinds, before.rebinds);
}

}  // namespace
}  // namespace etrt
