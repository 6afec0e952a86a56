#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engines/tensorrt/plan.h"

namespace etrt::tensorrt {

/// An ExecutionContext on a PlanContext: refuses what TensorRT would run on regardless
/// (shapes outside the profile, unaligned memory, an aliased output elsewhere than its
/// input), keeps the scratch, and tells output shapes.
class PlanExecution final : public ExecutionContext {
 public:
  /// `entry` and `tensors` (of each binding, its index in the plan) outlive the result.
  /// `scratch` may be used on any stream. `device` is what addresses are on.
  /// Sets the input shapes that the entry fixes. Errors: as PlanContext.
  static Result<std::unique_ptr<PlanExecution>> create(std::unique_ptr<PlanContext> context,
                                                       const EngineEntry& entry,
                                                       const std::vector<std::size_t>& tensors,
                                                       Buffer scratch);

  Status set_input_shape(std::size_t binding, const Shape& shape) override;
  Status bind(std::size_t binding, void* data) override;
  Status enqueue(Stream& stream, bool wait) override;
  Result<Shape> output_shape(std::size_t binding) const override;
  bool shapes_before_run() const noexcept override { return true; }

 private:
  PlanExecution(std::unique_ptr<PlanContext> context, const EngineEntry& entry,
                const std::vector<std::size_t>& tensors, Buffer scratch);
  /// Everything is set, and aliases hold.
  Status check_complete() const;

  const EngineEntry* entry_;
  const std::vector<std::size_t>* tensors_;
  Buffer scratch_;
  std::unique_ptr<PlanContext> context_;  // Ends before its scratch.
  std::vector<void*> addresses_;          // Of each binding; nullptr until bound.
  std::vector<bool> shape_known_;         // Of each binding; true for outputs.
  bool checked_ = false;                  // check_complete() has passed since the last change.
};

}  // namespace etrt::tensorrt
