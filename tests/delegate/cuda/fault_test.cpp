// A CUDA error in the middle of a run. CUDA refuses all work of the process after it, so this is a
// program of its own, with one test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "delegate/cuda/append_delegate.h"
#include "delegate/cuda/kernels.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

using test::AppendDelegate;
using testing::HasSubstr;

TEST(CudaFault, FailsTheSessionAndSaysWhatToDo) {
  const std::vector<float> one(8, 1);
  AppendDelegate decode("decode", Ownership::kSession);
  ASSERT_TRUE(decode.loaded()) << last_error();
  Session hit;
  Session other;
  for (const Session* session : {&hit, &other}) {
    const SessionScope use(*session);
    ASSERT_EQ(decode.run(one, 0), one) << last_error();
  }
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const StreamScope on(stream);
    const SessionScope use(hit);
    ASSERT_EQ(test::write_to_nowhere(stream), cudaSuccess);
    EXPECT_TRUE(decode.run(one, 1).empty());
    EXPECT_THAT(last_error(), HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_THAT(last_error(), HasSubstr("end it and start again"));
    EXPECT_EQ(hit.status(), SessionStatus::kFailed);
    EXPECT_TRUE(decode.run(one, 1).empty());
    EXPECT_THAT(last_error(), HasSubstr("reset"));
  }
  {
    const SessionScope use(other);
    EXPECT_EQ(other.status(), SessionStatus::kReady);
    EXPECT_TRUE(decode.run(one, 1).empty());
    EXPECT_THAT(last_error(), HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_FALSE(hit.reset().ok());
  // What is left ends in good order: sessions, context, engine.
}

}  // namespace
}  // namespace etrt
