#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engines/tensorrt/plan.h"

namespace etrt::tensorrt {

/// A profile of a plan as an engine's entry.
struct ProfileEntry {
  EngineEntry entry;                 ///< Named by the profile's index in decimal.
  std::vector<std::size_t> tensors;  ///< Of each binding of the entry: its index in the plan.
  /// Made while finding the bounds of the outputs; the first context to hand out, its
  /// input shapes at the profile's maximum.
  std::unique_ptr<PlanContext> context;
};

/// Every profile of `plan`, checked. An extent that a profile fixes is static in its
/// entry. Queues work on `stream`. Errors: kUnsupported, naming the tensor, for what
/// etrt can't bind: unknown element types, formats other than row-major, values wanted
/// in host memory, outputs whose extents depend on the data; kInvalidData if the plan
/// contradicts itself; what the plan reports.
Result<std::vector<ProfileEntry>> describe_profiles(Plan& plan, const PlanRuntime& runtime, Stream& stream);

}  // namespace etrt::tensorrt
