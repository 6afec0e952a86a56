#include "engines/tensorrt/loader.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engines/tensorrt/fixtures.h"

namespace etrt::tensorrt {
namespace {

EngineBytes plan_bytes() {
  auto owner = std::make_shared<std::vector<std::byte>>(standin::build({}));
  return {.bytes = *owner, .owner = owner};
}

TEST(Loader, OneRuntimeForAllPlansAliveAndNoneWithoutPlans) {
  int made = 0;
  auto control = std::make_shared<standin::Control>();
  TensorRtLoader loader(
      [&]() -> Result<std::shared_ptr<PlanRuntime>> {
        ++made;
        return standin::make_runtime(control);
      },
      [](std::int32_t) -> Result<Device*> { return &host_device(); });
  {
    auto first = loader.load(plan_bytes(), {});
    auto second = loader.load(plan_bytes(), {});
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(made, 1);
    EXPECT_EQ(control->plans, 2);
  }
  EXPECT_EQ(control->order.back(), 'r');
  EXPECT_TRUE(loader.load(plan_bytes(), {}).ok());
  EXPECT_EQ(made, 2);
}

TEST(Loader, TheDeviceIsThatOfTheOptions) {
  std::vector<std::int32_t> asked;
  auto control = std::make_shared<standin::Control>();
  TensorRtLoader loader([&] { return Result<std::shared_ptr<PlanRuntime>>(standin::make_runtime(control)); },
                        [&](std::int32_t index) -> Result<Device*> {
                          asked.push_back(index);
                          if (index == 0) return &host_device();
                          return Status(Code::kDevice, "there is no device 3");
                        });
  EXPECT_TRUE(loader.load(plan_bytes(), {.device_id = 0, .target_platform = ""}).ok());
  EXPECT_TRUE(says(loader.load(plan_bytes(), {.device_id = 3, .target_platform = ""}).status(), Code::kDevice,
                   {"no device 3"}));
  EXPECT_EQ(asked, (std::vector<std::int32_t>{0, 3}));
}

TEST(Loader, ARuntimeThatCantStartIsAskedForAgain) {
  int made = 0;
  auto control = std::make_shared<standin::Control>();
  TensorRtLoader loader(
      [&]() -> Result<std::shared_ptr<PlanRuntime>> {
        if (++made == 1) return Status(Code::kDevice, "no driver");
        return standin::make_runtime(control);
      },
      [](std::int32_t) -> Result<Device*> { return &host_device(); });
  EXPECT_TRUE(says(loader.load(plan_bytes(), {}).status(), Code::kDevice, {"no driver"}));
  EXPECT_TRUE(loader.load(plan_bytes(), {}).ok());
}

TEST(Loader, TheBytesArentNeededAfterwards) {
  auto control = std::make_shared<standin::Control>();
  TensorRtLoader loader([&] { return Result<std::shared_ptr<PlanRuntime>>(standin::make_runtime(control)); },
                        [](std::int32_t) -> Result<Device*> { return &host_device(); });
  auto owner = std::make_shared<std::vector<std::byte>>(standin::build({}));
  const std::weak_ptr<std::vector<std::byte>> watch = owner;
  EngineBytes bytes{.bytes = *owner, .owner = std::move(owner)};
  auto engine = loader.load(std::move(bytes), {});
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace etrt::tensorrt
