#pragma once

#include <executorch/runtime/backend/interface.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// A method of a plan that trt_builder has written, through ExecuTorch's BackendInterface, with
/// the container in memory: for plans too large to be wrapped first, and for faults.
namespace etrt::test {

class PlanDelegate {
 public:
  /// `bytes` is the plan name.plan; name.json beside it describes it.
  PlanDelegate(const std::string& name, const std::vector<std::byte>& bytes, const std::string& method);
  ~PlanDelegate();
  PlanDelegate(const PlanDelegate&) = delete;
  PlanDelegate& operator=(const PlanDelegate&) = delete;

  /// False if init failed; last_error() says why.
  bool loaded() const { return handle_ != nullptr; }

  /// The one output; empty after an error (last_error() says which). tokens [1, T].
  std::vector<float> run(const std::vector<std::int32_t>& tokens, std::int32_t position);

 private:
  executorch::runtime::BackendInterface* backend_;
  executorch::runtime::DelegateHandle* handle_ = nullptr;
  std::vector<float> output_;
  std::vector<std::int32_t> output_shape_;
};

}  // namespace etrt::test
