#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "device/device.h"
#include "etrt/stream.h"

namespace etrt {
namespace {

Stream* selected() {
  Result<Stream*> stream = StreamScope::innermost(host_device());
  EXPECT_TRUE(stream.ok()) << stream.status().message();
  return *stream;
}

TEST(StreamScope, NestsAndIsTheThreadsOwn) {
  auto first = *host_device().create_stream();
  auto second = *host_device().create_stream();
  EXPECT_EQ(selected(), nullptr);
  {
    const StreamScope outer(*first);
    EXPECT_EQ(selected(), first.get());
    {
      const StreamScope inner(*second);
      EXPECT_EQ(selected(), second.get());
    }
    EXPECT_EQ(selected(), first.get());
    std::thread([] { EXPECT_EQ(selected(), nullptr); }).join();
  }
  EXPECT_EQ(selected(), nullptr);
}

TEST(StreamScope, AStreamOfAnotherDeviceIsNotTheHosts) {
  const StreamScope use(/*cuda_stream=*/nullptr, 3);
  EXPECT_EQ(selected(), nullptr);
}

TEST(StreamScope, TheHostHasNoStreamsToBorrow) {
  const auto stream = host_device().borrow_stream(nullptr);
  EXPECT_EQ(stream.status().code(), Code::kUnsupported);
  EXPECT_THAT(stream.status().message(), testing::HasSubstr("host"));
}

}  // namespace
}  // namespace etrt
