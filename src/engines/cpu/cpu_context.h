#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include "engine/engine.h"

namespace etrt {

/// A loaded method of a CpuEngine's program, with its own activation memory.
class CpuContext final : public ExecutionContext {
 public:
  /// `program` and `entry` must outlive the context.
  static Result<std::unique_ptr<ExecutionContext>> create(const executorch::runtime::Program& program,
                                                          const EngineEntry& entry);

  Status set_input_shape(std::size_t binding, const Shape& shape) override;
  Status bind(std::size_t binding, void* data) override;
  Status enqueue(Stream& stream, bool wait) override;
  Result<Shape> output_shape(std::size_t binding) const override;
  bool shapes_before_run() const noexcept override { return false; }

 private:
  struct Input;

  explicit CpuContext(const EngineEntry& entry);
  Status load(const executorch::runtime::Program& program);
  Status execute();

  const EngineEntry& entry_;
  std::size_t num_inputs_ = 0;
  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::vector<std::vector<std::uint8_t>> arenas_;
  std::vector<executorch::runtime::Span<std::uint8_t>> spans_;
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> planned_;
  std::unique_ptr<executorch::runtime::MemoryManager> memory_;
  std::optional<executorch::runtime::Method> method_;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<void*> outputs_;
  Status result_;  ///< Of the last run.
};

}  // namespace etrt
