// Run with CUDA_VISIBLE_DEVICES empty: a build with CUDA on a machine without a GPU, or without a driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"

namespace etrt {
namespace {

TEST(NoGpu, SaysWhatIsMissing) {
  const Result<Device*> none = find_device({DeviceType::kCuda, 0});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kDevice);
  EXPECT_THAT(
      none.status().message(),
      testing::AnyOf(testing::HasSubstr("there is no NVIDIA driver on this machine"),
                     testing::HasSubstr("the NVIDIA driver finds no GPU; CUDA_VISIBLE_DEVICES is \"\"")));
  EXPECT_TRUE(find_device({DeviceType::kHost, 0}).ok());
}

}  // namespace
}  // namespace etrt
