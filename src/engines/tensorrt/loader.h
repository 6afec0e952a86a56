#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "engines/tensorrt/plan.h"

namespace etrt::tensorrt {

/// Loads plans for the kinds "tensorrt" and "tensorrt_rtx". The runtime is made when the
/// first plan is loaded and ends with the last one.
class TensorRtLoader final : public EngineLoader {
 public:
  using MakeRuntime = std::function<Result<std::shared_ptr<PlanRuntime>>()>;
  using FindDevice = std::function<Result<Device*>(std::int32_t index)>;

  /// Both may be called from any thread, one at a time.
  TensorRtLoader(MakeRuntime make_runtime, FindDevice find_device);

  Result<std::unique_ptr<Engine>> load(EngineBytes bytes, const EngineOptions& options) override;

 private:
  MakeRuntime make_runtime_;
  FindDevice find_device_;
  std::mutex mutex_;  // Over both functions and runtime_.
  std::weak_ptr<PlanRuntime> runtime_;
};

}  // namespace etrt::tensorrt
