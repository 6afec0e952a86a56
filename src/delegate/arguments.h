#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/span.h>

#include <cstdint>

#include "delegate/handle.h"
#include "etrt/status.h"

namespace etrt {

/// Checks an input tensor against what the method expects: dtype, rank, extents, dense
/// row-major order. Its extents go to `*shape`. Allocates only for an error.
Status check_input(const Argument& expected, const executorch::runtime::EValue& value, Shape* shape);

/// Checks that an output tensor's dtype fits and that its memory can hold any result.
Status check_output(const Argument& expected, const executorch::runtime::EValue& value);

/// Checks a caller-owned cache that has passed check_input(): row-major strides, on the engine's device (or
/// on the host, if `may_be_staged`), Device::kAlignment-aligned on a GPU.
Status check_cache(const Argument& expected, const executorch::aten::Tensor& tensor, const Device& device,
                   bool may_be_staged);

/// Checks that no two caches of `args` share memory: the engine would write one through the other.
Status check_overlaps(const Handle& handle, executorch::runtime::Span<executorch::runtime::EValue*> args);

/// Reads the position tensor: a scalar, [1], [rows], or with one row `count` consecutive
/// indices, into `positions` (one entry, or one for each row).
Status read_position(const Argument& expected, const executorch::aten::Tensor& tensor, std::int64_t rows,
                     std::int64_t count, std::vector<std::int64_t>* positions);

/// Gives an output tensor the extents of a result. kInternal if they don't fit.
Status resize_output(const Argument& expected, executorch::aten::Tensor& tensor, const Shape& shape);

}  // namespace etrt
