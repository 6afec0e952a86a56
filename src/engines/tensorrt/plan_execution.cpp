#include "engines/tensorrt/plan_execution.h"

#include <cstdint>
#include <string>
#include <utility>

#include "base/format.h"

namespace etrt::tensorrt {

namespace {

bool within(const Shape& shape, const EngineBinding& binding) {
  if (shape.rank() != binding.min_shape.rank()) return false;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] < binding.min_shape[i] || shape[i] > binding.max_shape[i]) return false;
  }
  return true;
}

Status no_such_binding(std::size_t binding, const EngineEntry& entry) {
  return {Code::kInvalidArgument,
          formatted("binding {} of profile {}, which has {}", binding, entry.name, entry.bindings.size())};
}

}  // namespace

PlanExecution::PlanExecution(std::unique_ptr<PlanContext> context, const EngineEntry& entry,
                             const std::vector<std::size_t>& tensors, Buffer scratch)
    : entry_(&entry),
      tensors_(&tensors),
      scratch_(std::move(scratch)),
      context_(std::move(context)),
      addresses_(entry.bindings.size(), nullptr),
      shape_known_(entry.bindings.size(), true) {}

Result<std::unique_ptr<PlanExecution>> PlanExecution::create(std::unique_ptr<PlanContext> context,
                                                             const EngineEntry& entry,
                                                             const std::vector<std::size_t>& tensors,
                                                             Buffer scratch) {
  std::unique_ptr<PlanExecution> made(
      new PlanExecution(std::move(context), entry, tensors, std::move(scratch)));
  if (Status s = made->context_->set_scratch(made->scratch_.data(), made->scratch_.bytes()); !s) return s;
  for (std::size_t i = 0; i < entry.bindings.size(); ++i) {
    const EngineBinding& binding = entry.bindings[i];
    if (!binding.is_input) continue;
    if (!binding.shape.is_static()) {
      made->shape_known_[i] = false;
    } else if (Status s = made->context_->set_input_shape(tensors[i], binding.shape); !s) {
      return s;
    }
  }
  return made;
}

Status PlanExecution::set_input_shape(std::size_t binding, const Shape& shape) {
  if (binding >= entry_->bindings.size()) return no_such_binding(binding, *entry_);
  const EngineBinding& b = entry_->bindings[binding];
  if (!b.is_input) {
    return {Code::kInvalidArgument,
            formatted("\"{}\" is an output: its shape follows from the inputs'", b.name)};
  }
  if (!within(shape, b)) {
    return {Code::kInvalidArgument,
            b.shape.is_static()
                ? formatted("input \"{}\" has shape {}; profile {} of the engine takes {} only", b.name,
                            to_string(shape), entry_->name, to_string(b.shape))
                : formatted("input \"{}\" has shape {}; profile {} of the engine takes {} to {}", b.name,
                            to_string(shape), entry_->name, to_string(b.min_shape), to_string(b.max_shape))};
  }
  shape_known_[binding] = false;
  checked_ = false;
  if (Status s = context_->set_input_shape((*tensors_)[binding], shape); !s) return s;
  shape_known_[binding] = true;
  return {};
}

Status PlanExecution::bind(std::size_t binding, void* data) {
  if (binding >= entry_->bindings.size()) return no_such_binding(binding, *entry_);
  const EngineBinding& b = entry_->bindings[binding];
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr) return {Code::kInvalidArgument, formatted("null address for binding \"{}\"", b.name)};
  if (address % Device::kAlignment != 0) {
    return {
        Code::kInvalidArgument,
        formatted("address {:#x} for binding \"{}\" isn't a multiple of {}, as TensorRT needs: allocate the "
                  "tensor on its own, or at an offset that is such a multiple",
                  address, b.name, Device::kAlignment)};
  }
  addresses_[binding] = nullptr;
  checked_ = false;
  if (Status s = context_->set_address((*tensors_)[binding], data); !s) return s;
  addresses_[binding] = data;
  return {};
}

Status PlanExecution::check_complete() const {
  for (std::size_t i = 0; i < entry_->bindings.size(); ++i) {
    const EngineBinding& b = entry_->bindings[i];
    if (addresses_[i] == nullptr) {
      return {Code::kInvalidArgument, formatted("binding \"{}\" has no address", b.name)};
    }
    if (!shape_known_[i]) {
      return {Code::kInvalidArgument,
              formatted("input \"{}\" has no shape; profile {} takes {} to {}", b.name, entry_->name,
                        to_string(b.min_shape), to_string(b.max_shape))};
    }
    if (b.declared_alias >= 0) {
      const auto input = static_cast<std::size_t>(b.declared_alias);
      if (addresses_[i] != addresses_[input]) {
        return {
            Code::kInvalidArgument,
            formatted(
                "the engine updates \"{}\" in place, but output \"{}\" is bound to {} and its input to {}: "
                "bind both to one address",
                entry_->bindings[input].name, b.name, addresses_[i], addresses_[input])};
      }
    }
  }
  return {};
}

Status PlanExecution::enqueue(Stream& stream, bool /*wait*/) {
  if (!checked_) {
    if (Status s = check_complete(); !s) return s;
    checked_ = true;
  }
  return context_->enqueue(stream);
}

Result<Shape> PlanExecution::output_shape(std::size_t binding) const {
  if (binding >= entry_->bindings.size()) return no_such_binding(binding, *entry_);
  const EngineBinding& b = entry_->bindings[binding];
  if (b.shape.is_static()) return b.shape;
  for (std::size_t i = 0; i < entry_->bindings.size(); ++i) {
    if (!shape_known_[i]) {
      return Status(Code::kInvalidArgument,
                    formatted("the shape of \"{}\" isn't known before that of input \"{}\" is set", b.name,
                              entry_->bindings[i].name));
    }
  }
  return context_->shape((*tensors_)[binding]);
}

}  // namespace etrt::tensorrt
