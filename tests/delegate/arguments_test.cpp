// What a run demands of the caller's caches, on the host and on a GPU; the checks look at no contents.
#include "delegate/arguments.h"

#include <executorch/extension/tensor/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "state/faulty_device.h"

namespace etrt {
namespace {

using executorch::aten::DimOrderType;
using executorch::aten::ScalarType;
using executorch::aten::StridesType;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;
using testing::HasSubstr;
using EtDevice = executorch::aten::Device;

const EtDevice kCpu(executorch::aten::DeviceType::CPU);
const EtDevice kGpu0(executorch::aten::DeviceType::CUDA, 0);
const EtDevice kGpu5(executorch::aten::DeviceType::CUDA, 5);

Argument cache_argument(const char* name) {
  Argument cache;
  cache.name = name;
  cache.shape = cache.min = cache.max = Shape{1, 2, 16, 4};
  cache.is_cache = true;
  return cache;
}

class CallersCache : public testing::Test {
 protected:
  static constexpr std::size_t kFloats = 128;

  TensorPtr cache(EtDevice device, std::size_t offset = 0) {
    return make_tensor_ptr({1, 2, 16, 4}, memory_.data() + offset, ScalarType::Float, device);
  }
  Status check(const TensorPtr& tensor, const Device& device, bool may_be_staged = false) {
    return check_cache(cache_argument("k"), *tensor, device, may_be_staged);
  }

  internal::FaultyDevice gpu_;  // cuda:5
  alignas(Device::kAlignment) std::array<float, 2 * kFloats> memory_{};
};

TEST_F(CallersCache, IsWhereTheEngineIs) {
  EXPECT_TRUE(check(cache(kGpu5), gpu_).ok());
  EXPECT_TRUE(check(cache(kCpu), host_device()).ok());
  const Status on_host = check(cache(kCpu), gpu_);
  EXPECT_EQ(on_host.code(), Code::kInvalidArgument);
  EXPECT_THAT(on_host.message(), HasSubstr("cache \"k\" is in host memory"));
  EXPECT_THAT(on_host.message(), HasSubstr("cuda:5"));
  EXPECT_THAT(on_host.message(), HasSubstr("stage_host_caches=1"));
  EXPECT_TRUE(check(cache(kCpu), gpu_, /*may_be_staged=*/true).ok());
  EXPECT_THAT(check(cache(kGpu0), gpu_).message(), HasSubstr("is on cuda:0, but the engine runs on cuda:5"));
  EXPECT_THAT(check(cache(kGpu5), host_device()).message(), HasSubstr("is in device memory"));
}

TEST_F(CallersCache, IsAlignedOnAGpu) {
  const Status refused = check(cache(kGpu5, 1), gpu_);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("isn't aligned to 256 bytes"));
  EXPECT_TRUE(check(cache(kGpu5, 64), gpu_).ok());
  EXPECT_TRUE(check(cache(kCpu, 1), host_device()).ok()) << "kernels of the CPU need none";
}

TEST_F(CallersCache, IsContiguous) {
  // Every second row of a larger cache.
  const TensorPtr strided =
      make_tensor_ptr({1, 2, 16, 4}, memory_.data(), std::vector<DimOrderType>{0, 1, 2, 3},
                      std::vector<StridesType>{128, 64, 4, 1}, ScalarType::Float, kGpu5);
  EXPECT_TRUE(check(strided, gpu_).ok());
  const std::array<StridesType, 4> wide{256, 128, 8, 1};
  auto* impl = strided->unsafeGetTensorImpl();
  std::copy(wide.begin(), wide.end(), const_cast<StridesType*>(impl->strides().data()));
  const Status refused = check(strided, gpu_);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("cache \"k\" isn't contiguous: stride 2 is 8, expected 4"));
}

TEST_F(CallersCache, HasTheMethodsDtypeShapeAndDimOrder) {
  const Argument expected = cache_argument("k");
  Shape shape;
  const auto refusal = [&](const TensorPtr& tensor) {
    return std::string(check_input(expected, EValue(*tensor), &shape).message());
  };
  EXPECT_EQ(refusal(cache(kGpu5)), "");
  EXPECT_THAT(refusal(make_tensor_ptr({1, 2, 16, 4}, memory_.data(), ScalarType::Half, kGpu5)),
              HasSubstr("input \"k\" is float16; the method expects float32"));
  EXPECT_THAT(refusal(make_tensor_ptr({1, 2, 8, 4}, memory_.data(), ScalarType::Float, kGpu5)),
              HasSubstr("has shape [1, 2, 8, 4]; the method expects [1, 2, 16, 4]"));
  EXPECT_THAT(refusal(make_tensor_ptr({1, 2, 16, 4}, memory_.data(), std::vector<DimOrderType>{0, 2, 3, 1},
                                      std::vector<StridesType>{128, 1, 8, 2}, ScalarType::Float, kGpu5)),
              HasSubstr("row-major dim order"));
}

TEST_F(CallersCache, OverlapsNoOther) {
  Handle handle;
  handle.inputs = {cache_argument("k"), cache_argument("v")};
  const auto refusal = [&](std::size_t offset) {
    const TensorPtr k = cache(kGpu5);
    const TensorPtr v = cache(kGpu5, offset);
    std::array<EValue, 2> values{EValue(*k), EValue(*v)};
    std::array<EValue*, 2> args{&values[0], &values[1]};
    return std::string(check_overlaps(handle, {args.data(), args.size()}).message());
  };
  EXPECT_EQ(refusal(kFloats), "");
  for (const std::size_t offset : {std::size_t{0}, std::size_t{64}, kFloats - 1}) {
    EXPECT_THAT(refusal(offset), HasSubstr("caches \"k\" and \"v\" overlap in memory")) << offset;
  }
  handle.inputs[1].is_cache = false;
  EXPECT_EQ(refusal(0), "") << "an input that is only read";
}

}  // namespace
}  // namespace etrt
