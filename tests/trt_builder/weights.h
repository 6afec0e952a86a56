#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trt_builder/network.h"

namespace etrt::trt_builder {

/// The weights of a model by the names that Hugging Face's Llama has.
class Weights {
 public:
  virtual ~Weights() = default;
  /// In `type`, kFLOAT or kHALF. Throws std::runtime_error if there is no such tensor.
  virtual ITensor* constant(Network& network, const std::string& name, const Extents& shape,
                            DataType type) = 0;
};

/// Values in [-0.5, 0.5) that depend on the name alone.
class FormulaWeights final : public Weights {
 public:
  ITensor* constant(Network& network, const std::string& name, const Extents& shape, DataType type) override;
};

/// A .safetensors file, held in memory; F32 or F16. Must outlive the building of networks.
class FileWeights final : public Weights {
 public:
  explicit FileWeights(const std::filesystem::path& path);
  ITensor* constant(Network& network, const std::string& name, const Extents& shape, DataType type) override;

 private:
  std::vector<char> bytes_;
  std::map<std::string, Values> tensors_;
};

}  // namespace etrt::trt_builder
