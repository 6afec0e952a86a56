#include <cassert>
#include <utility>

#include "device/device.h"
#include "etrt/stream.h"

namespace etrt {

namespace {

thread_local StreamScope* innermost_scope = nullptr;

}  // namespace

StreamScope::StreamScope(void* cuda_stream, int device) noexcept
    : device_{DeviceType::kCuda, device},
      cuda_stream_(cuda_stream),
      previous_(std::exchange(innermost_scope, this)) {}

StreamScope::StreamScope(Stream& stream) noexcept
    : device_(stream.device().id()), stream_(&stream), previous_(std::exchange(innermost_scope, this)) {}

StreamScope::~StreamScope() {
  assert(innermost_scope == this && "scopes end in reverse order, on the thread that began them");
  innermost_scope = previous_;
}

Result<Stream*> StreamScope::innermost(Device& device) {
  StreamScope* scope = innermost_scope;
  if (scope == nullptr || scope->device_ != device.id()) return static_cast<Stream*>(nullptr);
  if (scope->stream_ == nullptr) {
    Result<std::unique_ptr<Stream>> borrowed = device.borrow_stream(scope->cuda_stream_);
    if (!borrowed) return borrowed.status();
    scope->borrowed_ = *std::move(borrowed);
    scope->stream_ = scope->borrowed_.get();
  }
  return scope->stream_;
}

}  // namespace etrt
