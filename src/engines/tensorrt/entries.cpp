#include "engines/tensorrt/entries.h"

#include <string>
#include <utility>

#include "base/format.h"

namespace etrt::tensorrt {

namespace {

/// What of a tensor doesn't depend on the profile and its shapes.
Status check_tensor(const PlanTensor& tensor) {
  const std::string_view direction = tensor.is_input ? "input" : "output";
  if (tensor.name.empty()) {
    return {Code::kInvalidData, formatted("the plan has an {} without a name", direction)};
  }
  if (!tensor.dtype) {
    return {Code::kUnsupported,
            formatted("{} \"{}\" of the plan has element type {}, which etrt can't bind: build the plan with "
                      "float32, float16, bfloat16, int8, uint8, int32, int64 or bool there",
                      direction, tensor.name, tensor.dtype_name)};
  }
  if (tensor.on_host) {
    return {
        Code::kUnsupported,
        formatted("{} \"{}\" of the plan is a shape tensor, wanted in host memory before the run is queued: "
                  "etrt binds device memory only. Build the plan so that input shapes, not input values, "
                  "decide its shapes",
                  direction, tensor.name)};
  }
  return {};
}

Status check_format(const Plan& plan, std::size_t tensor, std::size_t profile) {
  const std::string format = plan.format(tensor, profile);
  if (format.empty()) return {};
  return {Code::kUnsupported,
          formatted("binding \"{}\" of the plan wants format \"{}\" in profile {}, and etrt binds row-major "
                    "(kLINEAR) tensors only: build the plan with TensorFormat::kLINEAR allowed for it",
                    plan.tensors()[tensor].name, format, profile)};
}

/// Static where a profile or the plan fixes the extent.
Shape merge(const Shape& least, const Shape& greatest) {
  Shape merged = greatest;
  for (std::size_t i = 0; i < merged.rank(); ++i) {
    if (least[i] != greatest[i]) merged[i] = -1;
  }
  return merged;
}

Result<EngineBinding> describe_input(const Plan& plan, std::size_t tensor, std::size_t profile) {
  const PlanTensor& t = plan.tensors()[tensor];
  Result<ShapeRange> range = plan.range(tensor, profile);
  if (!range) return range.status();
  if (range->min.rank() != t.shape.rank() || range->max.rank() != t.shape.rank() || !range->min.elements() ||
      !range->max.elements()) {
    return Status(
        Code::kInvalidData,
        formatted("profile {} of the plan gives input \"{}\", whose shape is {}, the range {} to {}", profile,
                  t.name, to_string(t.shape), to_string(range->min), to_string(range->max)));
  }
  EngineBinding binding;
  binding.name = t.name;
  binding.dtype = *t.dtype;
  binding.shape = merge(range->min, range->max);
  binding.min_shape = range->min;
  binding.max_shape = range->max;
  binding.is_input = true;
  return binding;
}

/// Shape of an output for the input shapes that `context` has.
Result<Shape> output_extents(const PlanContext& context, std::size_t tensor, const PlanTensor& t) {
  Result<Shape> shape = context.shape(tensor);
  if (!shape) return shape.status();
  if (!shape->elements()) {
    return Status(
        Code::kUnsupported,
        formatted("output \"{}\" of the plan has shape {} with every input shape known: the data decides "
                  "its extents (NonZero, NMS and the like), so no memory can be bound for it beforehand. "
                  "Build the plan without that output, or with a bounded, padded one",
                  t.name, to_string(*shape)));
  }
  return *shape;
}

Status set_shapes(PlanContext& context, const ProfileEntry& profile, bool greatest) {
  for (std::size_t i = 0; i < profile.entry.bindings.size(); ++i) {
    const EngineBinding& binding = profile.entry.bindings[i];
    if (!binding.is_input) break;
    if (Status s =
            context.set_input_shape(profile.tensors[i], greatest ? binding.max_shape : binding.min_shape);
        !s)
      return s;
  }
  return {};
}

/// The least and greatest extents that the outputs can have, from the inputs' range.
Status describe_outputs(const Plan& plan, ProfileEntry& profile) {
  const std::size_t inputs = profile.entry.bindings.size();
  std::vector<Shape> least;
  if (Status s = set_shapes(*profile.context, profile, /*greatest=*/false); !s) return s;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    if (plan.tensors()[i].is_input) continue;
    Result<Shape> shape = output_extents(*profile.context, i, plan.tensors()[i]);
    if (!shape) return shape.status();
    least.push_back(*shape);
  }
  if (Status s = set_shapes(*profile.context, profile, /*greatest=*/true); !s) return s;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    const PlanTensor& t = plan.tensors()[i];
    if (t.is_input) continue;
    Result<Shape> greatest = output_extents(*profile.context, i, t);
    if (!greatest) return greatest.status();
    EngineBinding binding;
    binding.name = t.name;
    binding.dtype = *t.dtype;
    binding.min_shape = least[profile.entry.bindings.size() - inputs];
    binding.max_shape = *greatest;
    binding.shape = merge(binding.min_shape, binding.max_shape);
    if (!t.aliased_input.empty()) {
      const int input = profile.entry.find(t.aliased_input);
      if (input < 0) {
        return {Code::kInvalidData,
                formatted("output \"{}\" of the plan wants the address of \"{}\", which is none "
                          "of its inputs",
                          t.name, t.aliased_input)};
      }
      binding.declared_alias = input;
    }
    profile.entry.bindings.push_back(std::move(binding));
    profile.tensors.push_back(i);
  }
  return {};
}

}  // namespace

Result<std::vector<ProfileEntry>> describe_profiles(Plan& plan, const PlanRuntime& runtime, Stream& stream) {
  for (const PlanTensor& tensor : plan.tensors()) {
    if (Status s = check_tensor(tensor); !s) return s;
  }
  std::vector<ProfileEntry> profiles;
  for (std::size_t p = 0; p < plan.profiles(); ++p) {
    ProfileEntry profile;
    profile.entry.name = std::to_string(p);
    profile.entry.declares_aliases = runtime.declares_aliases();
    for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
      if (Status s = check_format(plan, i, p); !s) return s;
      if (!plan.tensors()[i].is_input) continue;
      Result<EngineBinding> binding = describe_input(plan, i, p);
      if (!binding) return binding.status();
      profile.entry.bindings.push_back(std::move(*binding));
      profile.tensors.push_back(i);
    }
    Result<std::unique_ptr<PlanContext>> context = plan.create_context(p, stream);
    if (!context) return context.status();
    profile.context = std::move(*context);
    if (Status s = describe_outputs(plan, profile); !s) return s;
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

}  // namespace etrt::tensorrt
