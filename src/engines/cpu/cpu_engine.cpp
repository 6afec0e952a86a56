#include "engines/cpu/cpu_engine.h"

#include <executorch/runtime/executor/method_meta.h>
#include <executorch/runtime/platform/runtime.h>

#include <utility>

#include "base/format.h"
#include "engines/cpu/cpu_context.h"
#include "engines/cpu/et_dtype.h"

namespace etrt {

namespace et = executorch::runtime;

namespace {

Result<EngineBinding> describe(const et::Result<et::TensorInfo>& info, bool is_input, const char* method,
                               std::size_t index) {
  const char* what = is_input ? "input" : "output";
  if (!info.ok()) {
    return Status(Code::kUnsupported,
                  formatted("{} {} of the CPU program's method \"{}\" is no tensor", what, index, method));
  }
  if (info->is_memory_planned()) {
    return Status(Code::kUnsupported,
                  formatted("{} {} of the CPU program's method \"{}\" has planned memory: build it with "
                            "MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)",
                            what, index, method));
  }
  const std::optional<DType> dtype = dtype_from(info->scalar_type());
  if (!dtype || info->sizes().size() > Shape::kMaxRank) {
    return Status(Code::kUnsupported, formatted("{} {} of the CPU program's method \"{}\" has a dtype or "
                                                "rank that etrt doesn't carry",
                                                what, index, method));
  }
  EngineBinding binding;
  binding.dtype = *dtype;
  std::vector<std::int64_t> sizes(info->sizes().begin(), info->sizes().end());
  binding.shape = binding.min_shape = binding.max_shape = Shape(sizes);
  binding.is_input = is_input;
  return binding;
}

class CpuLoader final : public EngineLoader {
 public:
  CpuLoader() {
    et::runtime_init();
    if (Status s = register_engine_loader("cpu", *this); !s) std::abort();
  }
  Result<std::unique_ptr<Engine>> load(EngineBytes bytes, const EngineOptions& options) override {
    if (options.weight_streaming_budget >= 0) {
      return Status(Code::kUnsupported, "weight_streaming_budget: the CPU engine doesn't stream weights");
    }
    return CpuEngine::load(std::move(bytes));
  }
};

CpuLoader cpu_loader;

}  // namespace

Result<std::unique_ptr<Engine>> CpuEngine::load(EngineBytes bytes) {
  auto engine = std::unique_ptr<CpuEngine>(new CpuEngine(std::move(bytes)));
  engine->loader_ = std::make_unique<BytesLoader>(engine->bytes_.bytes);
  et::Result<et::Program> program = et::Program::load(engine->loader_.get());
  if (!program.ok()) {
    return Status(Code::kInvalidData,
                  formatted("the CPU engine's {} bytes are no ExecuTorch program (error 0x{:x}): export the "
                            "model again with the ExecuTorch version that runs it",
                            engine->bytes_.bytes.size(), static_cast<unsigned>(program.error())));
  }
  engine->program_ = std::make_unique<et::Program>(std::move(*program));
  for (std::size_t m = 0; m < engine->program_->num_methods(); ++m) {
    const et::Result<const char*> name = engine->program_->get_method_name(m);
    if (!name.ok()) return Status(Code::kInvalidData, "a method of the CPU program has no name");
    et::Result<et::MethodMeta> meta = engine->program_->method_meta(*name);
    if (!meta.ok()) return Status(Code::kInvalidData, formatted("method \"{}\" has no metadata", *name));
    EngineEntry entry{*name, {}};
    for (std::size_t i = 0; i < meta->num_inputs(); ++i) {
      Result<EngineBinding> binding = describe(meta->input_tensor_meta(i), true, *name, i);
      if (!binding) return binding.status();
      entry.bindings.push_back(std::move(*binding));
    }
    for (std::size_t i = 0; i < meta->num_outputs(); ++i) {
      Result<EngineBinding> binding = describe(meta->output_tensor_meta(i), false, *name, i);
      if (!binding) return binding.status();
      entry.bindings.push_back(std::move(*binding));
    }
    engine->entries_.push_back(std::move(entry));
  }
  return Result<std::unique_ptr<Engine>>(std::move(engine));
}

Result<std::unique_ptr<ExecutionContext>> CpuEngine::create_context(std::size_t entry) {
  if (entry >= entries_.size()) {
    return Status(Code::kInvalidArgument,
                  formatted("the CPU engine has no entry {}: it has {}", entry, entries_.size()));
  }
  return CpuContext::create(*program_, entries_[entry]);
}

}  // namespace etrt
