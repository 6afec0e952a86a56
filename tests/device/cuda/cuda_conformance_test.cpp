#include <cuda_runtime_api.h>

#include "conformance/device_suite.h"

namespace etrt::conformance {
namespace {

Device& cuda() { return **find_device({DeviceType::kCuda, 0}); }

Status hold(Stream& stream, Gate& gate) {
  const auto wait = [](void* held) { static_cast<Gate*>(held)->wait(); };
  const cudaError_t error =
      cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.native_handle()), wait, &gate);
  return error == cudaSuccess ? Status() : Status(Code::kDevice, cudaGetErrorString(error));
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceSuite, testing::Values(DeviceUnderTest{"cuda", &cuda, &hold}),
                         [](const auto& instance) { return instance.param.name; });

TEST(CudaDevice, AnIndexThatIsNotThereIsNamed) {
  for (const std::int32_t index : {-1, 1000}) {
    const Result<Device*> none = find_device({DeviceType::kCuda, index});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.status().code(), Code::kDevice);
    EXPECT_THAT(none.status().message(), testing::HasSubstr("no cuda:" + std::to_string(index)));
    EXPECT_THAT(none.status().message(), testing::HasSubstr("device_id"));
  }
}

TEST(CudaDevice, LeavesTheCurrentDeviceAndTheLastErrorAlone) {
  int before = -1;
  int after = -1;
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  Result<std::unique_ptr<Stream>> stream = cuda().create_stream();
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  EXPECT_FALSE(cuda().allocate(std::size_t{1} << 60, **stream).ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(before, after);
}

TEST(CudaDevice, MemoryThatRanOutIsThereAgainOnceItIsFreed) {
  const Result<std::unique_ptr<Stream>> stream = cuda().create_stream();
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  std::vector<Buffer> all;
  for (std::size_t bytes = std::size_t{16} << 30; bytes >= std::size_t{2} << 20;) {
    Result<Buffer> more = cuda().allocate(bytes, **stream);
    if (more.ok()) {
      all.push_back(std::move(*more));
      continue;
    }
    EXPECT_EQ(more.status().code(), Code::kOutOfMemory) << more.status().message();
    EXPECT_THAT(more.status().message(), testing::HasSubstr(std::to_string(bytes)));
    bytes /= 2;
  }
  ASSERT_FALSE(all.empty());
  all.clear();
  EXPECT_TRUE(cuda().allocate(std::size_t{16} << 30, **stream).ok());
}

}  // namespace
}  // namespace etrt::conformance
