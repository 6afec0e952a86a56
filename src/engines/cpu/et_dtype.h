#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <optional>

#include "etrt/types.h"

namespace etrt {

/// ExecuTorch's scalar type as ours; nullopt for one that no binding can have.
inline std::optional<DType> dtype_from(executorch::aten::ScalarType type) noexcept {
  using executorch::aten::ScalarType;
  switch (type) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Double:
      return DType::kFloat64;
    case ScalarType::Char:
      return DType::kInt8;
    case ScalarType::Byte:
      return DType::kUInt8;
    case ScalarType::Short:
      return DType::kInt16;
    case ScalarType::Int:
      return DType::kInt32;
    case ScalarType::Long:
      return DType::kInt64;
    case ScalarType::Bool:
      return DType::kBool;
    default:
      return std::nullopt;
  }
}

}  // namespace etrt
