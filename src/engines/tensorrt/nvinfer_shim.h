#pragma once

#include <memory>

#include "engines/tensorrt/plan.h"

namespace etrt::tensorrt {

/// The TensorRT library that this build is linked with. Errors: kUnsupported if its major
/// version isn't that of the headers; kDevice with its words if it can't start.
Result<std::shared_ptr<PlanRuntime>> make_nvinfer_runtime();

/// The linked library is TensorRT-RTX. Needs no GPU.
bool linked_with_rtx() noexcept;

}  // namespace etrt::tensorrt
