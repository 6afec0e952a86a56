// What goes wrong with real plans: each with a message, and nothing left behind.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "device/cuda/device_memory.h"
#include "engines/tensorrt/gpu/plans.h"

namespace etrt {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class PlanErrors : public testing::Test {
 protected:
  static Status refusal(const std::vector<std::byte>& plan, const EngineOptions& options = {}) {
    const Result<std::shared_ptr<Engine>> engine = test::load_plan(plan, options);
    EXPECT_FALSE(engine.ok());
    return engine.status();
  }
};

TEST_F(PlanErrors, NoPlanAtAll) {
  EXPECT_EQ(refusal({}).code(), Code::kInvalidData);
  const Status garbage = refusal(std::vector<std::byte>(5000, std::byte{0x5A}));
  EXPECT_EQ(garbage.code(), Code::kInvalidData) << garbage.message();
  EXPECT_THAT(garbage.message(), HasSubstr("can't read the plan of 5000 bytes"));
}

TEST_F(PlanErrors, ATruncatedPlan) {
  const std::vector<std::byte> plan = test::plan_bytes("append");
  for (const std::size_t size : {plan.size() / 4, plan.size() / 2, plan.size() - 100}) {
    const Status refused = refusal({plan.begin(), plan.begin() + static_cast<std::ptrdiff_t>(size)});
    EXPECT_EQ(refused.code(), Code::kInvalidData) << refused.message();
    EXPECT_THAT(refused.message(), HasSubstr(std::to_string(size)));
  }
  EXPECT_TRUE(test::load_plan(plan).ok());
}

/// Also the test of a runtime that the plans weren't built for, such as libnvinfer_lean.
TEST_F(PlanErrors, APlanOfAnotherVersionIsRefusedAndLeavesNothing) {
  const std::filesystem::path foreign = test::plans_folder() / "foreign.plan";
  if (!std::filesystem::exists(foreign)) {
    GTEST_SKIP() << "put a plan of another TensorRT or GPU at " << foreign << " to run this";
  }
  const std::vector<std::byte> plan = test::plan_bytes("foreign");
  for (int i = 0; i < 3; ++i) (void)refusal(plan);  // What the runtime keeps, it keeps from now on.
  const std::size_t before = test::free_device_memory();
  for (int i = 0; i < 50; ++i) {
    const Status refused = refusal(plan);
    ASSERT_EQ(refused.code(), Code::kInvalidData) << refused.message();
    ASSERT_THAT(refused.message(), HasSubstr("build it again"));
    if (i == 0) std::cout << refused.message() << '\n';
  }
  EXPECT_EQ(test::free_device_memory(), before);
}

TEST_F(PlanErrors, LoadingAgainAndAgainLeaksNothing) {
  const std::vector<std::byte> plan = test::plan_bytes("append");
  const auto load_and_run = [&] {
    Result<std::shared_ptr<Engine>> engine = test::load_plan(plan);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    ASSERT_TRUE((*engine)->create_context(0).ok());
    ASSERT_TRUE((*engine)->create_context(1).ok());
    ASSERT_TRUE((*engine)->create_context(0).ok());
  };
  for (int i = 0; i < 3; ++i) load_and_run();
  const std::size_t before = test::free_device_memory();
  for (int i = 0; i < 20; ++i) load_and_run();
  EXPECT_EQ(test::free_device_memory(), before);
}

TEST_F(PlanErrors, NoMemoryAtLoad) {
  const std::vector<std::byte> plan = test::plan_bytes("reverse");  // Has 4 MiB of constants.
  ASSERT_TRUE(test::load_plan(plan).ok());
  std::optional<test::AllDeviceMemory> taken(std::in_place);
  const Status refused = refusal(plan);
  taken.reset();
  EXPECT_EQ(refused.code(), Code::kOutOfMemory) << refused.message();
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(test::load_plan(plan).ok());
}

TEST_F(PlanErrors, OptionsThatThePlanCannotHonour) {
  const std::vector<std::byte> plan = test::plan_bytes("append");
  EngineOptions options;
  options.weight_streaming_budget = 16;
  EXPECT_THAT(refusal(plan, options).message(), HasSubstr("weight_streaming_budget is 16 bytes"));
  options = {};
  options.device_id = 1000;
  EXPECT_THAT(refusal(plan, options).message(), HasSubstr("no cuda:1000"));
  options = {};
  options.target_platform = "windows_arm64";
  EXPECT_THAT(refusal(plan, options).message(), HasSubstr("windows_arm64"));
  if (find_engine_loader("tensorrt").ok()) {  // TensorRT-RTX has no such level.
    options = {};
    options.hardware_compatible = true;
    EXPECT_THAT(refusal(plan, options).message(), HasSubstr("hardware_compatible"));
  }
}

}  // namespace
}  // namespace etrt
