#include "conformance/device_suite.h"
#include "device/host/host_stream.h"

namespace etrt::conformance {
namespace {

Status hold(Stream& stream, Gate& gate) {
  return as_host_stream(stream)->submit([](void* held) { static_cast<Gate*>(held)->wait(); }, &gate);
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceSuite, testing::Values(DeviceUnderTest{"host", &host_device, &hold}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace etrt::conformance
