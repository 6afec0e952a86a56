#pragma once

#include <executorch/runtime/executor/program.h>

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engines/cpu/bytes_loader.h"

namespace etrt {

/// An engine that is an ExecuTorch program: each method with unplanned inputs and
/// outputs is an entry. Runs on the CPU kernels and delegates of the process.
///
/// Bindings have no names (an ExecuTorch program keeps none); they are the method's
/// inputs, then its outputs. Extents are upper bounds: which of them may be less, the
/// program doesn't tell.
class CpuEngine final : public Engine {
 public:
  /// Keeps bytes.owner. Errors: kInvalidData if the bytes are no program, kUnsupported
  /// for a method with planned or non-tensor inputs or outputs.
  static Result<std::unique_ptr<Engine>> load(EngineBytes bytes);

  Device& device() const noexcept override { return host_device(); }
  std::span<const EngineEntry> entries() const noexcept override { return entries_; }
  Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t entry) override;

 private:
  explicit CpuEngine(EngineBytes bytes) : bytes_(std::move(bytes)) {}

  EngineBytes bytes_;
  std::unique_ptr<BytesLoader> loader_;
  std::unique_ptr<executorch::runtime::Program> program_;
  std::vector<EngineEntry> entries_;
};

}  // namespace etrt
