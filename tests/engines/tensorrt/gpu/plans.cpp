#include "engines/tensorrt/gpu/plans.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

namespace etrt::test {

std::filesystem::path plans_folder() {
  const char* folder = std::getenv("ETRT_TEST_PLANS");
  return folder == nullptr ? ETRT_TEST_PLANS : folder;
}

std::vector<std::byte> plan_bytes(const std::string& name) {
  const std::filesystem::path path = plans_folder() / (name + ".plan");
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(bytes.empty()) << path << " isn't there: run trt_builder";
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

EngineLoader& tensorrt_loader() {
  for (const char* kind : {"tensorrt", "tensorrt_rtx"}) {
    if (Result<EngineLoader*> loader = find_engine_loader(kind); loader.ok()) return **loader;
  }
  std::abort();  // This program is built with TensorRT only.
}

Result<std::shared_ptr<Engine>> load_plan(const std::vector<std::byte>& plan, const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = tensorrt_loader().load({plan, nullptr}, options);
  if (!engine) return engine.status();
  return std::shared_ptr<Engine>(std::move(*engine));
}

}  // namespace etrt::test
