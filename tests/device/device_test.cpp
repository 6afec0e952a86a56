#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace etrt {
namespace {

using testing::HasSubstr;

TEST(FindDevice, Host) {
  Result<Device*> found = find_device({DeviceType::kHost, 0});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, &host_device());
  EXPECT_EQ(host_device().id(), (DeviceId{DeviceType::kHost, 0}));
}

TEST(FindDevice, ThereIsOneHost) {
  Result<Device*> found = find_device({DeviceType::kHost, 1});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), Code::kDevice);
  EXPECT_THAT(found.status().message(), HasSubstr("host device 1"));
}

TEST(FindDevice, AsksTheProviderOfTheType) {
  const internal::DeviceProvider before =
      internal::register_device_provider(DeviceType::kCuda, [](int index) -> Result<Device*> {
        if (index == 3) return &host_device();
        return Status(Code::kDevice, "no device " + std::to_string(index));
      });
  Result<Device*> found = find_device({DeviceType::kCuda, 3});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, &host_device());
  EXPECT_EQ(find_device({DeviceType::kCuda, 4}).status().message(), "no device 4");

  internal::register_device_provider(DeviceType::kCuda, nullptr);
  Result<Device*> none = find_device({DeviceType::kCuda, 3});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_THAT(none.status().message(), HasSubstr("cuda:3"));
  EXPECT_THAT(none.status().message(), HasSubstr("ETRT_CUDA=ON"));
  internal::register_device_provider(DeviceType::kCuda, before);
}

}  // namespace
}  // namespace etrt
