#include "delegate/caller_stream.h"

#include <memory>
#include <optional>

#include "etrt/stream.h"

struct CUstream_st;

namespace executorch::extension::cuda {

/// In executorch_extension_cuda (extension/cuda/caller_stream.h), a library that a process may
/// have or not: a weak reference is null without it.
[[gnu::weak]] std::optional<CUstream_st*> getCallerStream();

}  // namespace executorch::extension::cuda

namespace etrt {

namespace {

/// The guard's stream as a Stream, kept for the thread's next run.
struct Borrowed {
  Device* device = nullptr;
  void* native = nullptr;
  std::unique_ptr<Stream> stream;
};

thread_local Borrowed last;

}  // namespace

Result<Stream*> caller_stream(Device& device) {
  Result<Stream*> scoped = StreamScope::innermost(device);
  if (!scoped || *scoped != nullptr) return scoped;
  if (device.id().type != DeviceType::kCuda || executorch::extension::cuda::getCallerStream == nullptr) {
    return scoped;
  }
  const std::optional<CUstream_st*> guarded = executorch::extension::cuda::getCallerStream();
  if (!guarded) return scoped;
  if (last.stream == nullptr || last.device != &device || last.native != *guarded) {
    Result<std::unique_ptr<Stream>> stream = device.borrow_stream(*guarded);
    if (!stream) return stream.status();
    last = {&device, *guarded, *std::move(stream)};
  }
  return last.stream.get();
}

}  // namespace etrt
