#include "engines/tensorrt/loader.h"

#include <utility>

#include "engines/tensorrt/tensorrt_engine.h"

namespace etrt::tensorrt {

TensorRtLoader::TensorRtLoader(MakeRuntime make_runtime, FindDevice find_device)
    : make_runtime_(std::move(make_runtime)), find_device_(std::move(find_device)) {}

Result<std::unique_ptr<Engine>> TensorRtLoader::load(EngineBytes bytes, const EngineOptions& options) {
  Device* device = nullptr;
  std::shared_ptr<PlanRuntime> runtime;
  {
    std::lock_guard lock(mutex_);
    Result<Device*> found = find_device_(options.device_id);
    if (!found) return found.status();
    device = *found;
    runtime = runtime_.lock();
    if (!runtime) {
      Result<std::shared_ptr<PlanRuntime>> made = make_runtime_();
      if (!made) return made.status();
      runtime = *made;
      runtime_ = runtime;
    }
  }
  return TensorRtEngine::create(std::move(runtime), bytes.bytes, options, *device);
}

}  // namespace etrt::tensorrt
