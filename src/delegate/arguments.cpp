#include "delegate/arguments.h"

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/format.h"
#include "engines/cpu/et_dtype.h"

namespace etrt {

namespace et = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;

namespace {

Shape shape_of(const Tensor& tensor) {
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  const std::size_t rank = std::min(static_cast<std::size_t>(tensor.dim()), extents.size());
  for (std::size_t i = 0; i < rank; ++i) extents[i] = tensor.size(static_cast<ssize_t>(i));
  return Shape(std::span<const std::int64_t>(extents.data(), rank));
}

std::string_view name_of(ScalarType type) {
  const std::optional<DType> dtype = dtype_from(type);
  return dtype ? to_string(*dtype) : std::string_view(et::toString(type));
}

Status check_tensor(const char* what, const Argument& expected, const et::EValue& value) {
  if (!value.isTensor()) {
    return {Code::kInvalidArgument, formatted("{} \"{}\" isn't a tensor", what, expected.name)};
  }
  const Tensor& tensor = value.toTensor();
  if (dtype_from(tensor.scalar_type()) != expected.dtype) {
    return {Code::kInvalidArgument, formatted("{} \"{}\" is {}; the method expects {}", what, expected.name,
                                              name_of(tensor.scalar_type()), to_string(expected.dtype))};
  }
  return {};
}

}  // namespace

Status check_input(const Argument& expected, const et::EValue& value, Shape* shape) {
  if (Status s = check_tensor("input", expected, value); !s) return s;
  const Tensor& tensor = value.toTensor();
  const auto rank = static_cast<std::size_t>(tensor.dim());
  bool fits = rank == expected.shape.rank();
  if (fits) *shape = shape_of(tensor);
  for (std::size_t i = 0; fits && i < rank; ++i) {
    const std::int64_t extent = (*shape)[i];
    fits = expected.shape[i] >= 0 ? extent == expected.shape[i]
                                  : extent >= expected.min[i] && extent <= expected.max[i];
  }
  if (!fits) {
    return {
        Code::kInvalidArgument,
        formatted("input \"{}\" has shape {}; the method expects {}{}", expected.name,
                  to_string(shape_of(tensor)), to_string(expected.shape),
                  expected.shape.is_static() ? std::string()
                                             : formatted(", at least {} and at most {}",
                                                         to_string(expected.min), to_string(expected.max)))};
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (tensor.dim_order()[i] != i) {
      return {Code::kInvalidArgument,
              formatted("input \"{}\" isn't in row-major dim order: make it contiguous", expected.name)};
    }
  }
  if (tensor.const_data_ptr() == nullptr && tensor.numel() != 0) {
    return {Code::kInvalidArgument, formatted("input \"{}\" has no data", expected.name)};
  }
  return {};
}

Status check_output(const Argument& expected, const et::EValue& value) {
  if (Status s = check_tensor("output", expected, value); !s) return s;
  const Tensor& tensor = value.toTensor();
  if (tensor.const_data_ptr() == nullptr && tensor.numel() != 0) {
    return {Code::kInvalidArgument,
            formatted("output \"{}\" has no memory: plan the method's outputs or set one", expected.name)};
  }
  return {};
}

Status check_cache(const Argument& expected, const Tensor& tensor, const Device& device, bool may_be_staged) {
  std::int64_t stride = 1;
  for (std::size_t i = static_cast<std::size_t>(tensor.dim()); i-- > 0;) {
    const auto extent = static_cast<std::int64_t>(tensor.sizes()[i]);
    if (extent != 1 && tensor.strides()[i] != stride) {
      return {
          Code::kInvalidArgument,
          formatted("cache \"{}\" isn't contiguous: stride {} is {}, expected {}. It is updated in place, so "
                    "pass the whole of a contiguous tensor",
                    expected.name, i, tensor.strides()[i], stride)};
    }
    stride *= extent;
  }
  if (device.id().type == DeviceType::kHost) {
    if (tensor.device().is_cpu()) return {};
    return {Code::kInvalidArgument,
            formatted("cache \"{}\" is in device memory, but the engine runs on the host", expected.name)};
  }
  if (tensor.device().is_cpu()) {
    if (may_be_staged) return {};
    return {
        Code::kInvalidArgument,
        formatted("cache \"{}\" is in host memory, but the engine updates it in place on {}: allocate it "
                  "there, or load the method with stage_host_caches=1, which copies the cache to the device "
                  "and back in each run",
                  expected.name, to_string(device.id()))};
  }
  if (tensor.device().index() >= 0 && tensor.device().index() != device.id().index) {
    return {Code::kInvalidArgument,
            formatted("cache \"{}\" is on cuda:{}, but the engine runs on {}", expected.name,
                      static_cast<int>(tensor.device().index()), to_string(device.id()))};
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % Device::kAlignment != 0) {
    return {Code::kInvalidArgument, formatted("cache \"{}\" is at {}, which isn't aligned to {} bytes",
                                              expected.name, tensor.const_data_ptr(), Device::kAlignment)};
  }
  return {};
}

Status check_overlaps(const Handle& handle, et::Span<et::EValue*> args) {
  const auto range = [&](std::size_t i) {
    const Tensor& tensor = args[i]->toTensor();
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    return std::pair(begin, begin + tensor.nbytes());
  };
  for (std::size_t i = 0; i < handle.inputs.size(); ++i) {
    if (!handle.inputs[i].is_cache) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (!handle.inputs[j].is_cache) continue;
      const auto [a, a_end] = range(i);
      const auto [b, b_end] = range(j);
      if (a >= b_end || b >= a_end) continue;
      return {
          Code::kInvalidArgument,
          formatted("caches \"{}\" and \"{}\" overlap in memory, and each is updated in place: give each its "
                    "own",
                    handle.inputs[j].name, handle.inputs[i].name)};
    }
  }
  return {};
}

Status read_position(const Argument& expected, const Tensor& tensor, std::int64_t rows, std::int64_t count,
                     std::vector<std::int64_t>* positions) {
  const auto at = [&](std::int64_t i) {
    return tensor.scalar_type() == ScalarType::Long
               ? tensor.const_data_ptr<std::int64_t>()[i]
               : static_cast<std::int64_t>(tensor.const_data_ptr<std::int32_t>()[i]);
  };
  if (!tensor.device().is_cpu()) {
    return {Code::kInvalidArgument,
            formatted(
                "position \"{}\" is in device memory: the host checks it before the run, so keep it in host "
                "memory",
                expected.name)};
  }
  const std::int64_t given = tensor.numel();
  if (tensor.dim() > 1 || (given != 1 && given != rows && !(rows == 1 && given == count))) {
    return {Code::kInvalidArgument,
            formatted("position \"{}\" has shape {}; expected a scalar, one index for each of {} batch "
                      "rows{}",
                      expected.name, to_string(shape_of(tensor)), rows,
                      rows == 1 ? formatted(", or {} consecutive ones, one for each token", count)
                                : std::string())};
  }
  positions->clear();
  if (given == rows) {
    for (std::int64_t i = 0; i < given; ++i) positions->push_back(at(i));
    return {};
  }
  for (std::int64_t i = 1; i < given; ++i) {
    if (at(i) != at(0) + i) {
      return {Code::kInvalidArgument,
              formatted("position \"{}\" must be consecutive, but index {} is {} after {}", expected.name, i,
                        at(i), at(i - 1))};
    }
  }
  positions->push_back(at(0));
  return {};
}

Status resize_output(const Argument& expected, Tensor& tensor, const Shape& shape) {
  std::array<SizesType, Shape::kMaxRank> sizes{};
  for (std::size_t i = 0; i < shape.rank(); ++i) sizes[i] = static_cast<SizesType>(shape[i]);
  if (et::resize_tensor(tensor, {sizes.data(), shape.rank()}) != et::Error::Ok) {
    return {Code::kInternal, formatted("output \"{}\" came out as {}, which its tensor can't hold",
                                       expected.name, to_string(shape))};
  }
  return {};
}

}  // namespace etrt
