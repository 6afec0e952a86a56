// Memory of somebody else's as a session's state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "state/state_fixtures.h"

namespace etrt::internal {
namespace {

using ::testing::HasSubstr;

class SessionAdopts : public testing::Test {
 protected:
  TensorView view(std::vector<float>& memory) const {
    return {.data = memory.data(), .dtype = DType::kFloat32, .shape = {1, 2, 8, 4}};
  }
  Status run(std::int64_t position) {
    return MethodRun{.request = request_, .positions = {position}, .count = 1, .engine = [](auto states) {
                       static_cast<float*>(states[0]->write())[0] += 1;
                     }}(*session_.impl(), *stream_);
  }

  std::shared_ptr<const StateRequest> request_ = ask({cache("k")});
  std::unique_ptr<Stream> stream_ = make_stream();
  Session session_;
  std::vector<float> memory_ = std::vector<float>(64, 7);
};

TEST_F(SessionAdopts, BeforeAnyRun) {
  ok(session_.adopt("k", view(memory_), 5));
  EXPECT_EQ(session_.length(), 0) << "no state is there yet";
  ok(run(5));
  EXPECT_EQ(memory_[0], 8);
  EXPECT_EQ(session_.length(), 6);
  EXPECT_EQ(session_.view("k")->data, memory_.data());
  EXPECT_EQ(session_.bytes(), 0U);
}

TEST_F(SessionAdopts, OfAStateThatIsThere) {
  ok(run(0));
  EXPECT_GT(session_.bytes(), 0U);
  ok(session_.adopt("k", view(memory_), 3));
  EXPECT_EQ(session_.bytes(), 0U);
  EXPECT_EQ(session_.length(), 3);
  ok(run(3));
  EXPECT_EQ(memory_[0], 8);
  std::vector<float> second(64, 1);
  ok(session_.adopt("k", view(second), 0));
  ok(run(0));
  EXPECT_EQ(second[0], 2);
  EXPECT_EQ(memory_[0], 8);
}

TEST_F(SessionAdopts, ResetWritesTheInitialContents) {
  ok(session_.adopt("k", view(memory_), 5));
  ok(run(5));
  ok(session_.reset());
  ok(session_.view("k").status());  // Waits for the reset.
  EXPECT_EQ(memory_, std::vector<float>(64, 0));
  EXPECT_EQ(session_.length(), 0);
}

TEST_F(SessionAdopts, OfOneModelOfSeveral) {
  ok(session_.adopt("k", view(memory_), 5, "other"));
  ok(run(0));
  EXPECT_EQ(memory_[0], 7) << "the run's model is \"m\"";
  ok(session_.adopt("k", view(memory_), 1, "m"));
  ok(run(1));
  EXPECT_EQ(memory_[0], 8);
}

TEST_F(SessionAdopts, WhatDoesNotFitIsRefused) {
  ok(run(0));
  const void* before = session_.view("k")->data;
  const auto expect_refused = [&](TensorView memory, std::int64_t length, const char* text) {
    const Status refused = session_.adopt("k", memory, length);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr(text));
    EXPECT_EQ(session_.view("k")->data, before);
    EXPECT_EQ(session_.length(), 1);
  };
  TensorView half = view(memory_);
  half.dtype = DType::kFloat16;
  expect_refused(half, 0, "float16 [1, 2, 8, 4], expected float32 [1, 2, 8, 4]");
  TensorView small = view(memory_);
  small.shape = {1, 2, 4, 4};
  expect_refused(small, 0, "[1, 2, 4, 4]");
  TensorView elsewhere = view(memory_);
  elsewhere.device = {DeviceType::kCuda, 0};
  expect_refused(elsewhere, 0, "cuda:0");
  TensorView nothing = view(memory_);
  nothing.data = nullptr;
  expect_refused(nothing, 0, "null");
  expect_refused(view(memory_), 9, "[0, 8]");
  expect_refused(view(memory_), -1, "[0, 8]");
  ok(run(1));
}

TEST_F(SessionAdopts, WhatDoesNotFitIsRefusedByTheFirstRun) {
  TensorView small = view(memory_);
  small.shape = {1, 2, 4, 4};
  ok(session_.adopt("k", small, 0));
  EXPECT_THAT(run(0).message(), HasSubstr("[1, 2, 4, 4]"));
  EXPECT_EQ(session_.status(), SessionStatus::kReady);
  ok(session_.adopt("k", view(memory_), 0));
  ok(run(0));
}

TEST_F(SessionAdopts, OfAStateThatSwapsIsRefused) {
  request_ = ask({recurrent("r")});
  ok(run(0));
  std::vector<float> three(3);
  const Status refused =
      session_.adopt("r", {.data = three.data(), .dtype = DType::kFloat32, .shape = {3}}, 0);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("swaps"));
}

}  // namespace
}  // namespace etrt::internal
