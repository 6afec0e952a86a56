#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "delegate/model.h"
#include "engine/engine.h"

namespace etrt::test {

/// A file of the test models.
inline std::vector<std::byte> read_model_file(const std::string& name) {
  std::ifstream file(models_folder() + "/" + name, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

/// An engine of the CPU's loader.
inline Result<std::shared_ptr<Engine>> load_cpu_engine(std::vector<std::byte> bytes,
                                                       const EngineOptions& options) {
  Result<EngineLoader*> loader = find_engine_loader("cpu");
  if (!loader) return loader.status();
  auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  Result<std::unique_ptr<Engine>> engine = (*loader)->load({*owned, owned}, options);
  if (!engine) return engine.status();
  return std::shared_ptr<Engine>(std::move(*engine));
}

/// Indices of the append engine's entries: a program has its methods in the order of their names.
inline constexpr std::size_t kAppendDecode = 0;
inline constexpr std::size_t kAppendPrefill = 1;

/// What the conformance suite runs.
inline Result<std::shared_ptr<Engine>> load_append_engine() {
  return load_cpu_engine(read_model_file("append.engine"), {});
}

}  // namespace etrt::test
