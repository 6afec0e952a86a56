#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engines/tensorrt/entries.h"
#include "engines/tensorrt/plan.h"

namespace etrt::tensorrt {

/// A plan on a device: one entry for each optimization profile.
class TensorRtEngine final : public Engine {
 public:
  /// Deserializes `bytes` onto `device` and checks the plan (see describe_profiles).
  /// The bytes aren't used after the call. Errors: those of PlanRuntime::load and
  /// describe_profiles; kUnsupported for options that this plan, runtime or machine can't
  /// honour; kInvalidData if the plan contradicts options.hardware_compatible.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<PlanRuntime> runtime,
                                                std::span<const std::byte> bytes,
                                                const EngineOptions& options, Device& device);

  Device& device() const noexcept override { return *device_; }
  std::span<const EngineEntry> entries() const noexcept override { return entries_; }
  /// Waits on the host for what selecting the profile queues. kUnsupported, with what to do, if the plan
  /// doesn't let two contexts use one profile at a time.
  Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t entry) override;

 private:
  TensorRtEngine(std::shared_ptr<PlanRuntime> runtime, std::unique_ptr<Plan> plan,
                 std::unique_ptr<Stream> setup_stream, Device& device);

  std::shared_ptr<PlanRuntime> runtime_;
  Device* device_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Stream> setup_stream_;  // Making contexts queues work.
  std::mutex mutex_;                      // Over setup_stream_, spare_ and plan_->create_context().
  std::vector<EngineEntry> entries_;
  std::vector<std::vector<std::size_t>> tensors_;    // Of each entry's bindings: the index in the plan.
  std::vector<std::unique_ptr<PlanContext>> spare_;  // Of each entry: a context not handed out yet, or null.
};

/// The value that target_platform has for programs built for this machine:
/// "linux_x86_64" and the like, as torch_tensorrt writes it; empty if it has no name there.
std::string_view current_platform() noexcept;

}  // namespace etrt::tensorrt
