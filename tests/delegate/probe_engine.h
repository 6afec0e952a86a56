#pragma once

#include <executorch/runtime/backend/interface.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

/// An engine that computes nothing, to see what the delegate does around one: kind "probe".
/// Inputs: position int64 [1], then states; outputs: y float32 [1], then the states.
namespace etrt::test {

/// What a run of the probe engine does instead of computing; runs on the run's thread. The
/// addresses are those bound, in the order of the bindings.
using ProbeHook = std::function<Status(const std::vector<void*>& bound)>;
void set_probe_hook(ProbeHook hook);

/// A delegate of a method with `states` session-owned states [1, 1, 8, 4] in place, set up
/// through ExecuTorch's BackendInterface, with its arguments.
class ProbeDelegate {
 public:
  explicit ProbeDelegate(int states);
  ~ProbeDelegate();
  ProbeDelegate(const ProbeDelegate&) = delete;
  ProbeDelegate& operator=(const ProbeDelegate&) = delete;

  /// False if init failed; last_error() says why.
  bool loaded() const { return handle_ != nullptr; }
  executorch::runtime::Error run(std::int64_t position);

 private:
  struct Arguments;

  executorch::runtime::BackendInterface* backend_;
  executorch::runtime::DelegateHandle* handle_ = nullptr;
  std::unique_ptr<Arguments> arguments_;
};

}  // namespace etrt::test
