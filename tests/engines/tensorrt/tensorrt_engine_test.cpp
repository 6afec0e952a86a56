#include "engines/tensorrt/tensorrt_engine.h"

#include <gtest/gtest.h>

#include <string>

#include "engines/tensorrt/fixtures.h"

namespace etrt::tensorrt {
namespace {

using standin::Control;
using standin::Spec;

class TensorRtEngineTest : public testing::Test {
 protected:
  ~TensorRtEngineTest() override {
    EXPECT_EQ(control_->plans, 0);
    EXPECT_EQ(control_->contexts, 0);
  }
  std::shared_ptr<Control> control_ = std::make_shared<Control>();
};

TEST_F(TensorRtEngineTest, ATruncatedPlanIsRefused) {
  const std::vector<std::byte> bytes = standin::build({});
  const auto runtime = standin::make_runtime(control_);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
    const auto engine = TensorRtEngine::create(runtime, std::span(bytes).first(size), {}, host_device());
    EXPECT_EQ(engine.status().code(), Code::kInvalidData) << size;
  }
}

TEST_F(TensorRtEngineTest, APlanOfAnotherVersionIsRefused) {
  EXPECT_TRUE(says(load({.version = 2}, control_).status(), Code::kInvalidData, {"version 2"}));
}

TEST_F(TensorRtEngineTest, NoMemoryAtLoadIsReported) {
  control_->fail_load = Status(Code::kOutOfMemory, "CUDA out of memory");
  EXPECT_TRUE(says(load({}, control_).status(), Code::kOutOfMemory, {"CUDA out of memory"}));
}

TEST_F(TensorRtEngineTest, NoContextAtLoadIsReported) {
  control_->fail_context = Status(Code::kOutOfMemory, "no room for a context");
  EXPECT_TRUE(says(load({}, control_).status(), Code::kOutOfMemory, {"no room for a context"}));
}

TEST_F(TensorRtEngineTest, NoScratchIsReportedAndTheContextNotLost) {
  Spec spec;
  spec.extra_scratch = std::uint64_t{1} << 60;
  auto engine = load(spec, control_);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const int made = control_->contexts_made;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(says((*engine)->create_context(1).status(), Code::kOutOfMemory, {"scratch", "profile 1"}));
  }
  EXPECT_EQ(control_->contexts_made, made);
  EXPECT_EQ(control_->contexts, made);
}

TEST_F(TensorRtEngineTest, TheContextsThatDescribedTheProfilesAreUsed) {
  auto engine = load({}, control_);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(control_->contexts_made, 2);
  auto prefill = (*engine)->create_context(0);
  auto decode = (*engine)->create_context(1);
  ASSERT_TRUE(prefill.ok() && decode.ok());
  EXPECT_EQ(control_->contexts_made, 2);
  auto another = (*engine)->create_context(1);
  ASSERT_TRUE(another.ok());
  EXPECT_EQ(control_->contexts_made, 3);
}

TEST_F(TensorRtEngineTest, AProfileThatCantBeSharedIsSaidSo) {
  auto engine = load({.profile_sharing = false}, control_);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto first = (*engine)->create_context(0);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(says((*engine)->create_context(0).status(), Code::kUnsupported, {"profile 0"}));
  first->reset();
  EXPECT_TRUE((*engine)->create_context(0).ok());
}

TEST_F(TensorRtEngineTest, EverythingEndsBeforeWhatItStandsOn) {
  {
    auto engine = load({}, control_);
    ASSERT_TRUE(engine.ok());
  }
  EXPECT_EQ(control_->order, "ccpr");
}

TEST_F(TensorRtEngineTest, AnotherPlatformsProgramIsRefused) {
  EXPECT_TRUE(load({}, control_, {.target_platform = std::string(current_platform())}).ok());
  EXPECT_TRUE(says(load({}, control_, {.target_platform = "windows_x86_64"}).status(), Code::kUnsupported,
                   {"windows_x86_64", std::string(current_platform())}));
  EXPECT_TRUE(
      says(load({}, control_, {.target_platform = "unknown"}).status(), Code::kUnsupported, {"unknown"}));
}

TEST_F(TensorRtEngineTest, HardwareCompatibilityMustBeThePlansToo) {
  const EngineOptions wanted{.hardware_compatible = true, .target_platform = ""};
  EXPECT_TRUE(
      says(load({}, control_, wanted).status(), Code::kInvalidData, {"hardware_compatible=true", "kNONE"}));
  EXPECT_TRUE(load({.hardware_compatible = true}, control_, wanted).ok());
  EXPECT_TRUE(load({.hardware_compatible = true}, control_).ok());
  EXPECT_TRUE(load({}, control_, wanted, false, /*is_rtx=*/true).ok());
}

TEST_F(TensorRtEngineTest, AWeightBudgetIsKeptOrRefused) {
  const Spec streamable{.streamable_weights = 1000};
  EXPECT_TRUE(load(streamable, control_).ok());
  EXPECT_EQ(control_->weight_budget, -1);
  EXPECT_TRUE(load(streamable, control_, {.weight_streaming_budget = 300, .target_platform = ""}).ok());
  EXPECT_EQ(control_->weight_budget, 300);
  EXPECT_TRUE(load(streamable, control_, {.weight_streaming_budget = 0, .target_platform = ""}).ok());
  EXPECT_EQ(control_->weight_budget, 0);
  EXPECT_TRUE(load(streamable, control_, {.weight_streaming_budget = 5000, .target_platform = ""}).ok());
  EXPECT_EQ(control_->weight_budget, 1000);

  const auto plan_bytes = static_cast<std::int64_t>(standin::build({}).size());
  EXPECT_TRUE(load({}, control_, {.weight_streaming_budget = plan_bytes, .target_platform = ""}).ok());
  EXPECT_TRUE(
      says(load({}, control_, {.weight_streaming_budget = plan_bytes - 1, .target_platform = ""}).status(),
           Code::kUnsupported,
           {std::to_string(plan_bytes - 1), std::to_string(plan_bytes), "kWEIGHT_STREAMING", "stand-in 1"}));
}

TEST_F(TensorRtEngineTest, RowsOutsideTheCacheAreDroppedByThePlanSoSomebodyElseMustCheck) {
  auto engine = load({.heads = 1, .capacity = 2, .head_dim = 1, .profiles = {{1, 1, 1}}}, control_);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto stream = std::move(*host_device().create_stream());
  auto context = std::move(*(*engine)->create_context(0));
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < 5; ++i) {
    buffers.push_back(std::move(*host_device().allocate_zeroed(256, *stream)));
    ASSERT_TRUE(context->bind(i, buffers[i == kCacheOut ? std::size_t{kCache} : i].data()).ok());
  }
  static_cast<float*>(buffers[kUpdate].data())[0] = 7;
  static_cast<std::int32_t*>(buffers[kPosition].data())[0] = 2;
  EXPECT_TRUE(context->enqueue(*stream, true).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  const auto* cache = static_cast<const float*>(buffers[kCache].data());
  EXPECT_EQ(std::vector<float>(cache, cache + 3), (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace etrt::tensorrt
