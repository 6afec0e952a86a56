#pragma once

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine.h"

namespace etrt {

class HostStream;

/// A loaded method of a CpuEngine's program, with its own activation memory. As with a
/// TensorRT context, a queued run keeps the addresses and shapes that it was queued with.
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

  /// Shapes and addresses of the bindings, in their order; shapes of inputs alone.
  struct Arguments {
    std::uint64_t generation = 0;  ///< Equal ones have equal arguments.
    std::vector<Shape> shapes;
    std::vector<void*> data;
  };
  /// A run that is queued and that nobody waits for.
  struct Queued {
    Arguments arguments;
    HostStream* stream = nullptr;
  };

  explicit CpuContext(const EngineEntry& entry);
  Status load(const executorch::runtime::Program& program);
  /// Gives the method what differs from its last run.
  Status apply(const Arguments& arguments);
  Status execute(const Arguments& arguments);
  void execute_queued();

  const EngineEntry& entry_;
  std::size_t num_inputs_ = 0;
  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::vector<std::vector<std::uint8_t>> arenas_;
  std::vector<executorch::runtime::Span<std::uint8_t>> spans_;
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> planned_;
  std::unique_ptr<executorch::runtime::MemoryManager> memory_;
  std::optional<executorch::runtime::Method> method_;
  Arguments wanted_;  ///< As set by the caller.

  // Of the run that is being executed.
  std::vector<std::unique_ptr<Input>> inputs_;
  Arguments applied_;
  Status result_;  ///< Of the last run that was waited for.

  std::mutex mutex_;
  std::deque<Queued> queued_;  ///< Guarded by mutex_.
  std::vector<Queued> spare_;  ///< Their memory. Guarded by mutex_.
};

}  // namespace etrt
