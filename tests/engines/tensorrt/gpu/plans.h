#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/engine.h"

/// The plans that trt_builder has written for this GPU, in the folder that ETRT_TEST_PLANS
/// names, or else the build's.
namespace etrt::test {

std::filesystem::path plans_folder();

/// Of FOLDER/name.plan; empty if it isn't there, which fails the test.
std::vector<std::byte> plan_bytes(const std::string& name);

/// The kind of TensorRT that this build is linked with.
EngineLoader& tensorrt_loader();

Result<std::shared_ptr<Engine>> load_plan(const std::vector<std::byte>& plan,
                                          const EngineOptions& options = {});

}  // namespace etrt::test
