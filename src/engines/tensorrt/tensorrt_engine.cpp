#include "engines/tensorrt/tensorrt_engine.h"

#include <utility>

#include "base/format.h"
#include "engines/tensorrt/plan_execution.h"

namespace etrt::tensorrt {

namespace {

Status check_platform(const std::string& target) {
  if (target.empty() || target == current_platform()) return {};
  return {
      Code::kUnsupported,
      formatted("the engine was built for platform \"{}\" and this machine is \"{}\": export the program for "
                "this platform",
                target, current_platform())};
}

Status check_hardware(const Plan& plan, const PlanRuntime& runtime, bool wanted) {
  if (!wanted || runtime.is_rtx() || plan.hardware_compatible()) return {};
  return {
      Code::kInvalidData,
      "the program says hardware_compatible=true, but its plan was built for one GPU architecture only "
      "(HardwareCompatibilityLevel kNONE): build the plan with a compatibility level, or the program without "
      "the setting"};
}

/// The budget counts weights in device memory. A plan that can't stream keeps all of
/// them there, which is within the budget only if the whole plan is.
Status apply_weight_budget(Plan& plan, const PlanRuntime& runtime, std::int64_t budget,
                           std::size_t plan_bytes) {
  if (budget < 0) return {};
  const std::int64_t streamable = plan.streamable_weights();
  if (streamable > 0) return plan.set_weight_budget(std::min(budget, streamable));
  if (static_cast<std::uint64_t>(budget) >= plan_bytes) return {};
  return {
      Code::kUnsupported,
      formatted("weight_streaming_budget is {} bytes, but the plan of {} bytes has no weights that {} can "
                "stream: build it with BuilderFlag::kWEIGHT_STREAMING (TensorRT 10 or later), or load it "
                "without a budget",
                budget, plan_bytes, runtime.name())};
}

}  // namespace

std::string_view current_platform() noexcept {
#if defined(__linux__) && defined(__x86_64__)
  return "linux_x86_64";
#elif defined(__linux__) && defined(__aarch64__)
  return "linux_aarch64";
#elif defined(_WIN32) && defined(_M_X64)
  return "windows_x86_64";
#elif defined(_WIN32) && defined(_M_ARM64)
  return "windows_arm64";
#else
  return "";
#endif
}

TensorRtEngine::TensorRtEngine(std::shared_ptr<PlanRuntime> runtime, std::unique_ptr<Plan> plan,
                               std::unique_ptr<Stream> setup_stream, Device& device)
    : runtime_(std::move(runtime)),
      device_(&device),
      plan_(std::move(plan)),
      setup_stream_(std::move(setup_stream)) {}

Result<std::unique_ptr<Engine>> TensorRtEngine::create(std::shared_ptr<PlanRuntime> runtime,
                                                       std::span<const std::byte> bytes,
                                                       const EngineOptions& options, Device& device) {
  if (Status s = check_platform(options.target_platform); !s) return s;
  Result<std::unique_ptr<Plan>> plan = runtime->load(bytes, device.id());
  if (!plan) return plan.status();
  if (Status s = check_hardware(**plan, *runtime, options.hardware_compatible); !s) return s;
  if (Status s = apply_weight_budget(**plan, *runtime, options.weight_streaming_budget, bytes.size()); !s)
    return s;

  Result<std::unique_ptr<Stream>> stream = device.create_stream();
  if (!stream) return stream.status();
  Result<std::vector<ProfileEntry>> profiles = describe_profiles(**plan, *runtime, **stream);
  // What was queued must be done before the contexts go, also those of a failure.
  const Status done = (*stream)->synchronize();
  if (!profiles) return profiles.status();
  if (!done) return done;

  std::unique_ptr<TensorRtEngine> engine(
      new TensorRtEngine(std::move(runtime), std::move(*plan), std::move(*stream), device));
  for (ProfileEntry& profile : *profiles) {
    engine->entries_.push_back(std::move(profile.entry));
    engine->tensors_.push_back(std::move(profile.tensors));
    engine->spare_.push_back(std::move(profile.context));
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<std::unique_ptr<ExecutionContext>> TensorRtEngine::create_context(std::size_t entry) {
  if (entry >= entries_.size()) {
    return Status(Code::kInvalidArgument,
                  formatted("profile {} of an engine that has {}", entry, entries_.size()));
  }
  std::lock_guard lock(mutex_);
  Result<Buffer> scratch = device_->allocate(plan_->scratch_bytes(entry), *setup_stream_);
  if (!scratch) {
    return Status(scratch.status().code(),
                  formatted("no scratch for a context of profile {}: {}", entry, scratch.status().message()));
  }
  std::unique_ptr<PlanContext> context = std::move(spare_[entry]);
  if (!context) {
    Result<std::unique_ptr<PlanContext>> made = plan_->create_context(entry, *setup_stream_);
    if (!made) return made.status();
    context = std::move(*made);
  }
  if (Status s = setup_stream_->synchronize(); !s) return s;
  Result<std::unique_ptr<PlanExecution>> execution =
      PlanExecution::create(std::move(context), entries_[entry], tensors_[entry], std::move(*scratch));
  if (!execution) return execution.status();
  return std::unique_ptr<ExecutionContext>(std::move(*execution));
}

}  // namespace etrt::tensorrt
