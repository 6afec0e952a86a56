#include "engines/tensorrt/plan_execution.h"

#include <gtest/gtest.h>

#include "engines/tensorrt/fixtures.h"

namespace etrt::tensorrt {
namespace {

class PlanExecutionTest : public testing::Test {
 protected:
  void SetUp() override { load({}); }

  void load(const standin::Spec& spec) {
    auto engine = tensorrt::load(spec, control_, {}, spec.declares_alias);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    buffers_.clear();
    context_.reset();
    engine_ = std::move(*engine);
    stream_ = std::move(*host_device().create_stream());
    context_ = std::move(*engine_->create_context(0));
    for (int i = 0; i < 5; ++i) buffers_.push_back(std::move(*host_device().allocate_zeroed(4096, *stream_)));
  }

  Status bind(std::size_t binding, std::size_t buffer) {
    return context_->bind(binding, buffers_[buffer].data());
  }
  void bind_all() {
    for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(bind(i, i == kCacheOut ? kCache : i).ok());
  }

  std::shared_ptr<standin::Control> control_ = std::make_shared<standin::Control>();
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<ExecutionContext> context_;
};

TEST_F(PlanExecutionTest, MessagesGiveTheProfileAndItsRange) {
  EXPECT_TRUE(says(context_->set_input_shape(kUpdate, {1, 2, 9, 4}), Code::kInvalidArgument,
                   {"\"update\"", "[1, 2, 9, 4]", "profile 0", "[1, 2, 1, 4] to [1, 2, 8, 4]"}));
  auto decode = std::move(*engine_->create_context(1));
  EXPECT_TRUE(says(decode->set_input_shape(kUpdate, {1, 2, 2, 4}), Code::kInvalidArgument,
                   {"\"update\"", "[1, 2, 2, 4]", "profile 1", "[1, 2, 1, 4] only"}));
}

TEST_F(PlanExecutionTest, AnOutputTakesNoShape) {
  EXPECT_TRUE(says(context_->set_input_shape(kY, {1, 2, 1, 4}), Code::kInvalidArgument, {"\"y\"", "output"}));
  EXPECT_TRUE(says(context_->set_input_shape(17, {1}), Code::kInvalidArgument, {"17", "5"}));
}

TEST_F(PlanExecutionTest, AMissingAddressIsNamedBeforeTheRun) {
  ASSERT_TRUE(context_->set_input_shape(kUpdate, {1, 2, 1, 4}).ok());
  for (const std::size_t i : {kCache, kUpdate, kCacheOut, kY}) {
    ASSERT_TRUE(bind(i, i == kCacheOut ? kCache : i).ok());
  }
  EXPECT_TRUE(
      says(context_->enqueue(*stream_, true), Code::kInvalidArgument, {"\"position\"", "no address"}));
  ASSERT_TRUE(bind(kPosition, kPosition).ok());
  EXPECT_TRUE(context_->enqueue(*stream_, true).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
}

TEST_F(PlanExecutionTest, AMissingShapeIsNamedBeforeTheRun) {
  bind_all();
  EXPECT_TRUE(says(context_->enqueue(*stream_, true), Code::kInvalidArgument, {"\"update\"", "no shape"}));
  EXPECT_TRUE(says(context_->output_shape(kY).status(), Code::kInvalidArgument, {"\"y\"", "\"update\""}));
  EXPECT_TRUE(context_->output_shape(kCacheOut).ok());
}

TEST_F(PlanExecutionTest, AnEntryWithStaticShapesNeedsNone) {
  context_ = std::move(*engine_->create_context(1));
  bind_all();
  EXPECT_EQ(*context_->output_shape(kY), Shape({1, 2, 1, 4}));
  EXPECT_TRUE(context_->enqueue(*stream_, true).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
}

TEST_F(PlanExecutionTest, UnalignedMemoryIsNamedWithItsAddress) {
  EXPECT_TRUE(says(context_->bind(kCache, static_cast<char*>(buffers_[0].data()) + 16),
                   Code::kInvalidArgument, {"\"cache\"", "0x", "256"}));
}

TEST_F(PlanExecutionTest, ADeclaredAliasIsCheckedAfterEveryRebind) {
  load({.declares_alias = true});
  bind_all();
  ASSERT_TRUE(context_->set_input_shape(kUpdate, {1, 2, 1, 4}).ok());
  EXPECT_TRUE(context_->enqueue(*stream_, true).ok());
  ASSERT_TRUE(bind(kCache, kCacheOut).ok());
  EXPECT_TRUE(
      says(context_->enqueue(*stream_, true), Code::kInvalidArgument, {"\"cache\"", "\"cache_out\""}));
  ASSERT_TRUE(bind(kCacheOut, kCacheOut).ok());
  EXPECT_TRUE(context_->enqueue(*stream_, true).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
}

TEST_F(PlanExecutionTest, AFailingRunGivesTheRuntimesWords) {
  bind_all();
  ASSERT_TRUE(context_->set_input_shape(kUpdate, {1, 2, 1, 4}).ok());
  control_->fail_enqueue = Status(Code::kDevice, "an illegal memory access was encountered");
  EXPECT_TRUE(says(context_->enqueue(*stream_, true), Code::kDevice, {"illegal memory access"}));
  control_->fail_enqueue.reset();
  EXPECT_TRUE(context_->enqueue(*stream_, true).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
}

}  // namespace
}  // namespace etrt::tensorrt
