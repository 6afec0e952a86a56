// The stand-in itself: what it must not be more forgiving about than TensorRT is.
#include "engines/tensorrt/standin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engines/tensorrt/fixtures.h"

namespace etrt::tensorrt {
namespace {

class StandIn : public testing::Test {
 protected:
  void load(const standin::Spec& spec) {
    Result<std::unique_ptr<Plan>> plan =
        standin::make_runtime(control_)->load(standin::build(spec), DeviceId{});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::move(*plan);
    stream_ = std::move(*host_device().create_stream());
    Result<std::unique_ptr<PlanContext>> context = plan_->create_context(0, *stream_);
    ASSERT_TRUE(context.ok()) << context.status().message();
    context_ = std::move(*context);
    for (std::size_t i = 0; i < plan_->tensors().size(); ++i) {
      buffers_.push_back(std::move(*host_device().allocate_zeroed(4096, *stream_)));
      ASSERT_TRUE(context_->set_address(i, buffers_[i].data()).ok());
    }
    ASSERT_TRUE(context_->set_address(kCacheOut, buffers_[kCache].data()).ok());
    buffers_.push_back(std::move(*host_device().allocate(plan_->scratch_bytes(0), *stream_)));
    ASSERT_TRUE(context_->set_scratch(buffers_.back().data(), buffers_.back().bytes()).ok());
    ASSERT_TRUE(context_->set_input_shape(kCache, plan_->tensors()[kCache].shape).ok());
    ASSERT_TRUE(context_->set_input_shape(kUpdate, {1, 1, 2, 1}).ok());
  }
  float* floats(std::size_t tensor) { return static_cast<float*>(buffers_[tensor].data()); }

  std::shared_ptr<standin::Control> control_ = std::make_shared<standin::Control>();
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<PlanContext> context_;
};

const standin::Spec kSmall{.heads = 1, .capacity = 4, .head_dim = 1, .profiles = {{1, 2, 2}}};

TEST_F(StandIn, AppendsAndSums) {
  load(kSmall);
  floats(kCache)[0] = 10;
  floats(kUpdate)[0] = 3;
  floats(kUpdate)[1] = 4;
  static_cast<std::int32_t*>(buffers_[kPosition].data())[0] = 1;
  ASSERT_TRUE(context_->enqueue(*stream_).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
  EXPECT_EQ(std::vector<float>(floats(kCache), floats(kCache) + 4), (std::vector<float>{10, 3, 4, 0}));
  EXPECT_EQ(std::vector<float>(floats(kY), floats(kY) + 2), (std::vector<float>{13, 17}));
}

TEST_F(StandIn, DropsRowsOutsideTheCacheInSilence) {
  load(kSmall);
  floats(kUpdate)[0] = 3;
  floats(kUpdate)[1] = 4;
  static_cast<std::int32_t*>(buffers_[kPosition].data())[0] = 3;
  ASSERT_TRUE(context_->enqueue(*stream_).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
  EXPECT_EQ(std::vector<float>(floats(kCache), floats(kCache) + 5), (std::vector<float>{0, 0, 0, 3, 0}));
}

TEST_F(StandIn, RefusesUnalignedAddresses) {
  load(kSmall);
  EXPECT_FALSE(context_->set_address(kCache, static_cast<char*>(buffers_[kCache].data()) + 128).ok());
}

TEST_F(StandIn, RefusesShapesOutsideTheProfile) {
  load(kSmall);
  EXPECT_FALSE(context_->set_input_shape(kUpdate, {1, 1, 3, 1}).ok());
  EXPECT_FALSE(context_->set_input_shape(kUpdate, {1, 1, 0, 1}).ok());
  EXPECT_FALSE(context_->set_input_shape(kUpdate, {1, 2, 1, 1}).ok());
}

TEST_F(StandIn, RefusesADeclaredAliasElsewhere) {
  standin::Spec spec = kSmall;
  spec.declares_alias = true;
  load(spec);
  EXPECT_TRUE(context_->enqueue(*stream_).ok());
  ASSERT_TRUE(context_->set_address(kCacheOut, buffers_[kCacheOut].data()).ok());
  EXPECT_FALSE(context_->enqueue(*stream_).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
}

TEST_F(StandIn, NeedsItsScratch) {
  load(kSmall);
  ASSERT_TRUE(context_->set_scratch(buffers_.back().data(), 1).ok());
  EXPECT_FALSE(context_->enqueue(*stream_).ok());
}

}  // namespace
}  // namespace etrt::tensorrt
