#include "engines/cpu/cpu_context.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/executor/method_meta.h>
#include <fmt/format.h>

#include "device/host/host_stream.h"

namespace etrt {

namespace et = executorch::runtime;
using executorch::aten::DimOrderType;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::StridesType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

namespace {

ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ScalarType::Float;
    case DType::kFloat16: return ScalarType::Half;
    case DType::kBFloat16: return ScalarType::BFloat16;
    case DType::kFloat64: return ScalarType::Double;
    case DType::kInt8: return ScalarType::Char;
    case DType::kUInt8: return ScalarType::Byte;
    case DType::kInt16: return ScalarType::Short;
    case DType::kInt32: return ScalarType::Int;
    case DType::kInt64: return ScalarType::Long;
    case DType::kBool: return ScalarType::Bool;
  }
  return ScalarType::Undefined;
}

/// XNNPACK's packed weights are shared between contexts through its weight cache, whose
/// lock then takes the XNNPACK parts of concurrent runs one after another.
/// ETRT_XNNPACK_WEIGHT_CACHE=0 packs them for each context instead.
bool share_packed_weights() {
  static const bool share = [] {
    const char* value = std::getenv("ETRT_XNNPACK_WEIGHT_CACHE");
    return value == nullptr || std::strcmp(value, "0") != 0;
  }();
  return share;
}

}  // namespace

/// What is given to Method::set_input, kept so that a run without a change gives nothing.
struct CpuContext::Input {
  Input(ScalarType scalar_type, std::size_t rank)
      : type(scalar_type), sizes(rank), order(rank), strides(rank) {
    for (std::size_t i = 0; i < rank; ++i) order[i] = static_cast<DimOrderType>(i);
  }

  ScalarType type;
  std::vector<SizesType> sizes;
  std::vector<DimOrderType> order;
  std::vector<StridesType> strides;
  std::optional<TensorImpl> impl;  ///< Once a shape is set.
  Shape shape;
  void* data = nullptr;
  bool stale = true;
};

CpuContext::CpuContext(const EngineEntry& entry) : entry_(entry) {
  for (const EngineBinding& binding : entry.bindings) {
    if (!binding.is_input) continue;
    inputs_.push_back(std::make_unique<Input>(scalar_type(binding.dtype), binding.shape.rank()));
  }
  num_inputs_ = inputs_.size();
  outputs_.resize(entry.bindings.size() - num_inputs_, nullptr);
}

Result<std::unique_ptr<ExecutionContext>> CpuContext::create(const et::Program& program,
                                                             const EngineEntry& entry) {
  auto context = std::unique_ptr<CpuContext>(new CpuContext(entry));
  if (Status s = context->load(program); !s) return s;
  return Result<std::unique_ptr<ExecutionContext>>(std::move(context));
}

Status CpuContext::load(const et::Program& program) {
  et::Result<et::MethodMeta> meta = program.method_meta(entry_.name.c_str());
  if (!meta.ok()) return {Code::kInternal, fmt::format("no method \"{}\"", entry_.name)};
  for (std::size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
    const et::Result<std::int64_t> size = meta->memory_planned_buffer_size(i);
    if (!size.ok()) return {Code::kInvalidData, "a planned buffer of the CPU program has no size"};
    arenas_.emplace_back(static_cast<std::size_t>(*size));
    spans_.emplace_back(arenas_.back().data(), arenas_.back().size());
  }
  planned_ = std::make_unique<et::HierarchicalAllocator>(
      et::Span<et::Span<std::uint8_t>>(spans_.data(), spans_.size()));
  memory_ = std::make_unique<et::MemoryManager>(&method_allocator_, planned_.get(), &temp_allocator_);

  // A workspace for each context (PerModel is 1, by allocator), so that runs of different
  // contexts don't wait for one another.
  et::BackendOptions<2> xnnpack;
  et::LoadBackendOptionsMap options;
  if (xnnpack.set_option("workspace_sharing_mode", 1) != et::Error::Ok ||
      xnnpack.set_option("weight_cache_enabled", share_packed_weights()) != et::Error::Ok ||
      options.set_options("XnnpackBackend", xnnpack.view()) != et::Error::Ok) {
    return {Code::kInternal, "XNNPACK's load options were refused"};
  }
  et::Result<et::Method> method =
      program.load_method(entry_.name.c_str(), memory_.get(), nullptr, nullptr, &options);
  if (!method.ok()) {
    const et::Error error = method.error();
    const Code code = error == et::Error::MemoryAllocationFailed ? Code::kOutOfMemory : Code::kInvalidData;
    return {code, fmt::format("the CPU program's method \"{}\" didn't load (ExecuTorch error 0x{:x}): an "
                              "operator that isn't linked, or too little memory; ExecuTorch's log says which",
                              entry_.name, static_cast<unsigned>(error))};
  }
  method_.emplace(std::move(*method));
  return {};
}

Status CpuContext::set_input_shape(std::size_t binding, const Shape& shape) {
  const EngineBinding& info = entry_.bindings[binding];
  bool fits = shape.rank() == info.max_shape.rank();
  for (std::size_t i = 0; fits && i < shape.rank(); ++i) {
    fits = shape[i] >= 0 && shape[i] <= info.max_shape[i];
  }
  if (!fits) {
    return {Code::kInvalidArgument, fmt::format("input {} has shape {}; at most {} is allowed", binding,
                                                to_string(shape), to_string(info.max_shape))};
  }
  Input& input = *inputs_[binding];
  input.shape = shape;
  StridesType stride = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    input.sizes[i] = static_cast<SizesType>(shape[i]);
    input.strides[i] = stride;
    stride *= static_cast<StridesType>(shape[i]);
  }
  // Made anew: a TensorImpl counts its elements once.
  input.impl.emplace(input.type, static_cast<ssize_t>(shape.rank()), input.sizes.data(), input.data,
                     input.order.data(), input.strides.data());
  input.stale = true;
  return {};
}

Status CpuContext::bind(std::size_t binding, void* data) {
  if (binding < num_inputs_) {
    Input& input = *inputs_[binding];
    input.data = data;
    if (input.impl) input.impl->set_data(data);
    input.stale = true;
    return {};
  }
  const std::size_t output = binding - num_inputs_;
  const EngineBinding& info = entry_.bindings[binding];
  const std::size_t bytes =
      static_cast<std::size_t>(info.max_shape.elements().value_or(0)) * size_of(info.dtype);
  if (method_->set_output_data_ptr(data, bytes, output) != et::Error::Ok) {
    return {Code::kInvalidArgument, fmt::format("output {} can't be bound to the given memory", output)};
  }
  outputs_[output] = data;
  return {};
}

Status CpuContext::execute() {
  for (std::size_t i = 0; i < num_inputs_; ++i) {
    Input& input = *inputs_[i];
    if (!input.stale) continue;
    if (method_->set_input(et::EValue(Tensor(&*input.impl)), i) != et::Error::Ok) {
      return {Code::kInvalidArgument,
              fmt::format("input {} of shape {} was refused by method \"{}\" of the CPU program", i,
                          to_string(input.shape), entry_.name)};
    }
    input.stale = false;
  }
  if (const et::Error error = method_->execute(); error != et::Error::Ok) {
    return {Code::kInternal,
            fmt::format("method \"{}\" of the CPU program failed with ExecuTorch error 0x{:x}", entry_.name,
                        static_cast<unsigned>(error))};
  }
  return {};
}

Status CpuContext::enqueue(Stream& stream, bool wait) {
  for (std::size_t i = 0; i < num_inputs_; ++i) {
    if (!inputs_[i]->impl) return {Code::kInternal, fmt::format("input {} has no shape", i)};
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] == nullptr) return {Code::kInternal, fmt::format("output {} isn't bound", i)};
  }
  auto& host = static_cast<HostStream&>(stream);
  const auto run = [](void* self) {
    auto& context = *static_cast<CpuContext*>(self);
    context.result_ = context.execute();
  };
  if (!wait) return host.submit(run, this);
  if (Status s = host.run(run, this); !s) return s;
  return result_;
}

Result<Shape> CpuContext::output_shape(std::size_t binding) const {
  const Tensor& tensor = method_->get_output(binding - num_inputs_).toTensor();
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  const auto rank = static_cast<std::size_t>(tensor.dim());
  for (std::size_t i = 0; i < rank; ++i) extents[i] = tensor.sizes()[i];
  return Shape(std::span<const std::int64_t>(extents.data(), rank));
}

}  // namespace etrt
