#include "device/device.h"

#include <array>
#include <atomic>

#include "base/format.h"

namespace etrt {
namespace {

std::atomic<std::uint64_t> last_stream_id{0};

constexpr std::size_t kDeviceTypes = 2;
// Constant-initialised, so that providers can register from static initialisers.
constinit std::array<std::atomic<internal::DeviceProvider>, kDeviceTypes> providers{};

std::atomic<internal::DeviceProvider>& provider_of(DeviceType type) noexcept {
  return providers[static_cast<std::size_t>(type)];
}

}  // namespace

Stream::Stream() noexcept : id_(last_stream_id.fetch_add(1, std::memory_order_relaxed) + 1) {}

Buffer::~Buffer() {
  if (device_ != nullptr && data_ != nullptr) device_->free(data_, bytes_, nullptr);
}

void Buffer::release_after(Event& event) noexcept {
  if (device_ != nullptr && data_ != nullptr) device_->free(data_, bytes_, &event);
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

Result<std::unique_ptr<Stream>> Device::borrow_stream(void* /*native*/) {
  return Status(Code::kUnsupported, formatted("{} has no streams but etrt's own", to_string(id())));
}

Result<Device*> find_device(DeviceId id) {
  if (id.type == DeviceType::kHost) {
    if (id.index == 0) return &host_device();
    return Status(Code::kDevice, formatted("there is no host device {}: the only one is number 0", id.index));
  }
  internal::DeviceProvider provider = provider_of(id.type).load(std::memory_order_acquire);
  if (provider == nullptr) {
    return Status(
        Code::kUnsupported,
        formatted("this build of etrt has no device {}: configure it with -DETRT_CUDA=ON", to_string(id)));
  }
  return provider(id.index);
}

namespace internal {

DeviceProvider register_device_provider(DeviceType type, DeviceProvider provider) noexcept {
  return provider_of(type).exchange(provider, std::memory_order_acq_rel);
}

}  // namespace internal
}  // namespace etrt
