#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "engines/tensorrt/standin.h"
#include "engines/tensorrt/tensorrt_engine.h"

namespace etrt::tensorrt {

/// Index of each of the stand-in's tensors, and of its entries' bindings.
enum Binding : std::size_t { kCache, kUpdate, kPosition, kCacheOut, kY };

/// `text` appears in `status`'s message.
inline testing::AssertionResult says(const Status& status, Code code, const std::vector<std::string>& texts) {
  if (status.code() != code) {
    return testing::AssertionFailure() << to_string(status.code()) << ": " << status.message();
  }
  for (const std::string& text : texts) {
    if (status.message().find(text) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << text << "\" in: " << status.message();
    }
  }
  return testing::AssertionSuccess();
}

/// An engine of a stand-in plan on the host device.
inline Result<std::unique_ptr<Engine>> load(const standin::Spec& spec,
                                            std::shared_ptr<standin::Control> control,
                                            const EngineOptions& options = {}, bool declares_aliases = false,
                                            bool is_rtx = false) {
  const std::vector<std::byte> bytes = standin::build(spec);
  return TensorRtEngine::create(standin::make_runtime(std::move(control), declares_aliases, is_rtx), bytes,
                                options, host_device());
}

}  // namespace etrt::tensorrt
