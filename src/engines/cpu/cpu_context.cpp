#include "engines/cpu/cpu_context.h"

#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/executor/method_meta.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/format.h"
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
    case DType::kFloat32:
      return ScalarType::Float;
    case DType::kFloat16:
      return ScalarType::Half;
    case DType::kBFloat16:
      return ScalarType::BFloat16;
    case DType::kFloat64:
      return ScalarType::Double;
    case DType::kInt8:
      return ScalarType::Char;
    case DType::kUInt8:
      return ScalarType::Byte;
    case DType::kInt16:
      return ScalarType::Short;
    case DType::kInt32:
      return ScalarType::Int;
    case DType::kInt64:
      return ScalarType::Long;
    case DType::kBool:
      return ScalarType::Bool;
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

/// A tensor for Method::set_input, which takes over its extents and address.
struct CpuContext::Input {
  Input(ScalarType scalar_type, std::size_t rank)
      : type(scalar_type), sizes(rank), order(rank), strides(rank) {
    for (std::size_t i = 0; i < rank; ++i) order[i] = static_cast<DimOrderType>(i);
  }

  /// Valid until the next call.
  TensorImpl& tensor(const Shape& shape, void* data) {
    StridesType stride = 1;
    for (std::size_t i = shape.rank(); i-- > 0;) {
      sizes[i] = static_cast<SizesType>(shape[i]);
      strides[i] = stride;
      stride *= static_cast<StridesType>(shape[i]);
    }
    // Made anew: a TensorImpl counts its elements once.
    return impl.emplace(type, static_cast<ssize_t>(shape.rank()), sizes.data(), data, order.data(),
                        strides.data());
  }

  ScalarType type;
  std::vector<SizesType> sizes;
  std::vector<DimOrderType> order;
  std::vector<StridesType> strides;
  std::optional<TensorImpl> impl;
};

CpuContext::CpuContext(const EngineEntry& entry) : entry_(entry) {
  for (const EngineBinding& binding : entry.bindings) {
    if (!binding.is_input) continue;
    inputs_.push_back(std::make_unique<Input>(scalar_type(binding.dtype), binding.shape.rank()));
  }
  num_inputs_ = inputs_.size();
  wanted_.generation = 1;
  for (Arguments* arguments : {&wanted_, &applied_}) {
    arguments->shapes.resize(num_inputs_);
    arguments->data.resize(entry.bindings.size(), nullptr);
  }
  for (std::size_t i = 0; i < num_inputs_; ++i) wanted_.shapes[i] = entry.bindings[i].max_shape;
}

Result<std::unique_ptr<ExecutionContext>> CpuContext::create(const et::Program& program,
                                                             const EngineEntry& entry) {
  auto context = std::unique_ptr<CpuContext>(new CpuContext(entry));
  if (Status s = context->load(program); !s) return s;
  return Result<std::unique_ptr<ExecutionContext>>(std::move(context));
}

Status CpuContext::load(const et::Program& program) {
  et::Result<et::MethodMeta> meta = program.method_meta(entry_.name.c_str());
  if (!meta.ok()) return {Code::kInternal, formatted("no method \"{}\"", entry_.name)};
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
    return {code, formatted("the CPU program's method \"{}\" didn't load (ExecuTorch error 0x{:x}): an "
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
    fits = shape[i] >= std::min<std::int64_t>(1, info.max_shape[i]) && shape[i] <= info.max_shape[i];
  }
  if (!fits) {
    return {Code::kInvalidArgument, formatted("input {} has shape {}; at most {} is allowed", binding,
                                              to_string(shape), to_string(info.max_shape))};
  }
  wanted_.shapes[binding] = shape;
  ++wanted_.generation;
  return {};
}

Status CpuContext::bind(std::size_t binding, void* data) {
  if (binding >= wanted_.data.size()) {
    return {Code::kInvalidArgument,
            formatted("there is no binding {}: \"{}\" has {}", binding, entry_.name, wanted_.data.size())};
  }
  if (data == nullptr) {
    return {Code::kInvalidArgument, formatted("binding {} can't be at a null address", binding)};
  }
  wanted_.data[binding] = data;
  ++wanted_.generation;
  return {};
}

Status CpuContext::apply(const Arguments& arguments) {
  if (arguments.generation == applied_.generation) return {};
  for (std::size_t i = 0; i < num_inputs_; ++i) {
    if (arguments.data[i] == applied_.data[i] && arguments.shapes[i] == applied_.shapes[i]) continue;
    TensorImpl& tensor = inputs_[i]->tensor(arguments.shapes[i], arguments.data[i]);
    if (method_->set_input(et::EValue(Tensor(&tensor)), i) != et::Error::Ok) {
      return {Code::kInvalidArgument,
              formatted("input {} of shape {} was refused by method \"{}\" of the CPU program", i,
                        to_string(arguments.shapes[i]), entry_.name)};
    }
  }
  for (std::size_t i = num_inputs_; i < arguments.data.size(); ++i) {
    if (arguments.data[i] == applied_.data[i]) continue;
    const EngineBinding& info = entry_.bindings[i];
    const std::size_t bytes =
        static_cast<std::size_t>(info.max_shape.elements().value_or(0)) * size_of(info.dtype);
    if (method_->set_output_data_ptr(arguments.data[i], bytes, i - num_inputs_) != et::Error::Ok) {
      return {Code::kInvalidArgument,
              formatted("output {} can't be bound to the given memory", i - num_inputs_)};
    }
  }
  applied_ = arguments;
  return {};
}

Status CpuContext::execute(const Arguments& arguments) {
  if (Status s = apply(arguments); !s) {
    applied_.generation = 0;  // Some of them are.
    applied_.data.assign(applied_.data.size(), nullptr);
    return s;
  }
  if (const et::Error error = method_->execute(); error != et::Error::Ok) {
    return {Code::kInternal, formatted("method \"{}\" of the CPU program failed with ExecuTorch error 0x{:x}",
                                       entry_.name, static_cast<unsigned>(error))};
  }
  return {};
}

void CpuContext::execute_queued() {
  Queued run;
  {
    const std::lock_guard lock(mutex_);
    run = std::move(queued_.front());
    queued_.pop_front();
  }
  if (Status s = execute(run.arguments); !s) run.stream->report_fault(std::move(s));
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(run));
}

Status CpuContext::enqueue(Stream& stream, bool wait) {
  for (std::size_t i = 0; i < wanted_.data.size(); ++i) {
    if (wanted_.data[i] == nullptr) {
      return {Code::kInvalidArgument, formatted("binding {} has no address: bind() it first", i)};
    }
  }
  auto& host = static_cast<HostStream&>(stream);
  if (wait) {
    const auto run = [](void* self) {
      auto& context = *static_cast<CpuContext*>(self);
      context.result_ = context.execute(context.wanted_);
    };
    if (Status s = host.run(run, this); !s) return s;
    return result_;
  }
  {
    const std::lock_guard lock(mutex_);
    Queued queued;
    if (!spare_.empty()) {
      queued = std::move(spare_.back());
      spare_.pop_back();
    }
    queued.arguments = wanted_;
    queued.stream = &host;
    queued_.push_back(std::move(queued));
  }
  Status s = host.submit([](void* self) { static_cast<CpuContext*>(self)->execute_queued(); }, this);
  if (!s) {
    const std::lock_guard lock(mutex_);
    queued_.pop_back();
  }
  return s;
}

Result<Shape> CpuContext::output_shape(std::size_t binding) const {
  const Tensor& tensor = method_->get_output(binding - num_inputs_).toTensor();
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  const auto rank = static_cast<std::size_t>(tensor.dim());
  for (std::size_t i = 0; i < rank; ++i) extents[i] = tensor.sizes()[i];
  return Shape(std::span<const std::int64_t>(extents.data(), rank));
}

}  // namespace etrt
