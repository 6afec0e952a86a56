#pragma once

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// A program of the test models, run through ExecuTorch's own Module.
/// ETRT_TEST_MODELS names the folder; each engine has its own with the same files.
namespace etrt::test {

/// The folder, without a slash at the end.
std::string models_folder();

class Model {
 public:
  /// `name`: "tiny_decoder", ... `mode` as Module's.
  explicit Model(const std::string& name,
                 executorch::extension::Module::LoadMode mode = executorch::extension::Module::LoadMode::Mmap)
      : module_(models_folder() + "/" + name + ".pte", mode) {}

  executorch::extension::Module& module() { return module_; }

  /// Runs `method` on tokens [rows, tokens / rows] and position [positions]; the first
  /// output's values, empty after an error (error() has it).
  std::vector<float> run(const std::string& method, const std::vector<std::int64_t>& tokens,
                         const std::vector<std::int64_t>& position, std::int64_t rows = 1);
  /// With float inputs [1, T, width] in place of tokens; no position if it is empty.
  std::vector<float> run(const std::string& method, const std::vector<float>& values,
                         const std::vector<std::int32_t>& shape, const std::vector<std::int64_t>& position);

  std::vector<float> run(const std::string& method, std::vector<executorch::extension::TensorPtr> inputs);

  executorch::runtime::Error error() const { return error_; }

  /// An integer tensor of the dtype that the method's input `index` has.
  executorch::extension::TensorPtr integers(const std::string& method, std::size_t index,
                                            std::vector<std::int32_t> shape,
                                            const std::vector<std::int64_t>& values);

 private:
  executorch::extension::Module module_;
  executorch::runtime::Error error_ = executorch::runtime::Error::Ok;
};

}  // namespace etrt::test
