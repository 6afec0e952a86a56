#pragma once

#include <filesystem>
#include <functional>

#include "trt_builder/description.h"
#include "trt_builder/network.h"

namespace etrt::trt_builder {

using AddModel = std::function<Description(Network&)>;

/// Builds the plan of a model for the current GPU and writes it to `plan`, and beside it, with
/// the ending .json, a bindings file for `etrt wrap`. Throws std::runtime_error with TensorRT's
/// words. The extents of inputs that are -1 are all the profiles' one.
void build(const AddModel& add, bool half, const std::filesystem::path& plan);

}  // namespace etrt::trt_builder
