// Linked into a test program, skips all of its tests on a machine without a CUDA device.
#include <gtest/gtest.h>

#include "device/device.h"

namespace etrt {
namespace {

class NeedsGpu final : public testing::Environment {
 public:
  void SetUp() override {
    if (const Result<Device*> device = find_device({DeviceType::kCuda, 0}); !device) {
      GTEST_SKIP() << "needs a CUDA device: " << device.status().message();
    }
  }
};

[[maybe_unused]] const testing::Environment* const registered =
    testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace etrt
