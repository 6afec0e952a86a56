#include "engines/tensorrt/nvinfer_shim.h"

#include <NvInfer.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/log.h"
#include "device/cuda/device_guard.h"

/// The only file that includes NvInfer: plan.h on TensorRT 8.6, 9, 10 and 11, and on TensorRT-RTX,
/// whose headers number its versions from 1 and have the interface of TensorRT 10 and later.
#define ETRT_TENSORRT_AT_LEAST(major, minor) \
  (NV_TENSORRT_MAJOR > (major) || (NV_TENSORRT_MAJOR == (major) && NV_TENSORRT_MINOR >= (minor)))
#if NV_TENSORRT_MAJOR == 1
#define ETRT_RTX_HEADERS 1
#else
#define ETRT_RTX_HEADERS 0
#endif
#if !ETRT_RTX_HEADERS && !ETRT_TENSORRT_AT_LEAST(8, 6)
#error "etrt needs the headers of TensorRT 8.6 or later, or of TensorRT-RTX"
#endif
// ICudaEngine::createExecutionContext(strategy), per-profile formats and scratch sizes.
#define ETRT_TENSORRT_10 (ETRT_RTX_HEADERS || ETRT_TENSORRT_AT_LEAST(10, 0))
// setDeviceMemoryV2, getDeviceMemorySizeForProfileV2, setWeightStreamingBudgetV2.
#define ETRT_TENSORRT_10_1 (ETRT_RTX_HEADERS || ETRT_TENSORRT_AT_LEAST(10, 1))
// ICudaEngine::getAliasedInputTensor.
#define ETRT_TENSORRT_ALIASES ((ETRT_RTX_HEADERS && NV_TENSORRT_MINOR >= 4) || ETRT_TENSORRT_AT_LEAST(10, 15))

namespace etrt::tensorrt {

namespace {

using nvinfer1::ICudaEngine;
using nvinfer1::IExecutionContext;
using nvinfer1::IRuntime;

/// What TensorRT logs as an error on this thread while one is alive: TensorRT's calls
/// return a bool or a null pointer, and only the log says why.
class Captured {
 public:
  Captured() noexcept : outer_(current_) { current_ = this; }
  ~Captured() { current_ = outer_; }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  static Captured* current() noexcept { return current_; }

  void add(std::string_view text) {
    if (!text_.empty()) text_ += "; ";
    text_ += text;
  }
  bool any() const noexcept { return !text_.empty(); }

  /// `code`, unless the text says that memory or the device failed.
  Status status(Code code, std::string_view what) const {
    const std::string_view said = any() ? std::string_view(text_) : "TensorRT logged no reason";
    return {classify(code), formatted("{}: {}", what, said)};
  }

 private:
  bool mentions(std::string_view word) const { return text_.find(word) != std::string::npos; }
  Code classify(Code code) const {
    for (const std::string_view word : {"out of memory", "OutOfMemory", "Out of memory", "outOfMemory"}) {
      if (mentions(word)) return Code::kOutOfMemory;
    }
    for (const std::string_view word : {"Cuda Runtime", "Cuda Driver", "CUDA error", "cudaError"}) {
      if (mentions(word)) return Code::kDevice;
    }
    return code;
  }

  static thread_local Captured* current_;
  Captured* outer_;
  std::string text_;
};

thread_local Captured* Captured::current_ = nullptr;

class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const nvinfer1::AsciiChar* message) noexcept override {
    try {
      const bool error = severity == Severity::kERROR || severity == Severity::kINTERNAL_ERROR;
      if (error && Captured::current() != nullptr) {
        Captured::current()->add(message);
        return;
      }
      const LogLevel level = error                            ? LogLevel::kError
                             : severity == Severity::kWARNING ? LogLevel::kWarning
                             : severity == Severity::kINFO    ? LogLevel::kInfo
                                                              : LogLevel::kDebug;
      if (log_enabled(level)) etrt::log(level, message);
    } catch (...) {  // Out of memory for a message: TensorRT must not see an exception.
    }
  }
};

/// nullopt for what nvinfer1::Dims says is no shape.
std::optional<Shape> to_shape(const nvinfer1::Dims& dims) {
  if (dims.nbDims < 0 || static_cast<std::size_t>(dims.nbDims) > Shape::kMaxRank) return std::nullopt;
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  std::copy_n(dims.d, dims.nbDims, extents.begin());
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(dims.nbDims)));
}

nvinfer1::Dims to_dims(const Shape& shape) {
  nvinfer1::Dims dims{};
  dims.nbDims = static_cast<std::int32_t>(shape.rank());
  for (std::size_t i = 0; i < shape.rank(); ++i)
    dims.d[i] = static_cast<std::decay_t<decltype(dims.d[0])>>(shape[i]);
  return dims;
}

struct TypeName {
  std::optional<DType> dtype;
  std::string_view name;
};

/// By number: the headers of each version name only the types that it knows.
TypeName name_type(nvinfer1::DataType type) {
  switch (static_cast<std::int32_t>(type)) {
    case 0:
      return {DType::kFloat32, "kFLOAT"};
    case 1:
      return {DType::kFloat16, "kHALF"};
    case 2:
      return {DType::kInt8, "kINT8"};
    case 3:
      return {DType::kInt32, "kINT32"};
    case 4:
      return {DType::kBool, "kBOOL"};
    case 5:
      return {DType::kUInt8, "kUINT8"};
    case 6:
      return {std::nullopt, "kFP8"};
    case 7:
      return {DType::kBFloat16, "kBF16"};
    case 8:
      return {DType::kInt64, "kINT64"};
    case 9:
      return {std::nullopt, "kINT4"};
    case 10:
      return {std::nullopt, "kFP4"};
    case 11:
      return {std::nullopt, "kE8M0"};
    default:
      return {std::nullopt, "unknown to etrt"};
  }
}

PlanTensor describe_tensor(const ICudaEngine& engine, std::int32_t index) {
  const char* name = engine.getIOTensorName(index);
  PlanTensor tensor;
  tensor.name = name;
  tensor.is_input = engine.getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT;
  const TypeName type = name_type(engine.getTensorDataType(name));
  tensor.dtype = type.dtype;
  tensor.dtype_name = type.name;
  tensor.shape = to_shape(engine.getTensorShape(name)).value_or(Shape{});
  tensor.on_host =
      engine.getTensorLocation(name) == nvinfer1::TensorLocation::kHOST || engine.isShapeInferenceIO(name);
#if ETRT_TENSORRT_ALIASES
  if (const char* input = engine.getAliasedInputTensor(name); !tensor.is_input && input != nullptr) {
    tensor.aliased_input = input;
  }
#endif
  return tensor;
}

/// A plan and what its contexts need of it. Contexts end on any thread, and TensorRT
/// doesn't say that making and ending them at the same time is safe.
struct Deserialized {
  std::shared_ptr<PlanRuntime> runtime;  // Ends last.
  int device = 0;
  std::mutex mutex;
  std::unique_ptr<ICudaEngine> engine;
  std::vector<PlanTensor> tensors;

  ~Deserialized() {
    const CudaDeviceGuard guard(device);
    engine.reset();
  }
  const char* name(std::size_t tensor) const { return tensors[tensor].name.c_str(); }
};

class NvContext final : public PlanContext {
 public:
  NvContext(Deserialized& plan, IExecutionContext* context) : plan_(plan), context_(context) {}
  ~NvContext() override {
    const CudaDeviceGuard guard(plan_.device);
    const std::lock_guard lock(plan_.mutex);
    context_.reset();
  }

  Status select(std::size_t profile, Stream& stream) {
    const auto index = static_cast<std::int32_t>(profile);
    if (context_->getOptimizationProfile() == index) return {};
    const Captured errors;
    if (context_->setOptimizationProfileAsync(index, static_cast<cudaStream_t>(stream.native_handle())))
      return {};
    return errors.status(
        Code::kUnsupported,
        formatted("profile {} can't be used by one more context (a plan of TensorRT 8 lets contexts "
                  "share a profile only if it was built with "
                  "PreviewFeature::kPROFILE_SHARING_0806)",
                  profile));
  }

  Status set_input_shape(std::size_t tensor, const Shape& shape) override {
    const CudaDeviceGuard guard(plan_.device);
    if (!guard.ok()) return guard.status();
    const Captured errors;
    if (context_->setInputShape(plan_.name(tensor), to_dims(shape))) return {};
    return errors.status(Code::kInvalidArgument,
                         formatted("input \"{}\" can't have shape {}", plan_.name(tensor), to_string(shape)));
  }

  Result<Shape> shape(std::size_t tensor) const override {
    const std::optional<Shape> shape = to_shape(context_->getTensorShape(plan_.name(tensor)));
    if (shape) return *shape;
    return Status(Code::kInternal,
                  formatted("TensorRT gives binding \"{}\" no shape with these inputs", plan_.name(tensor)));
  }

  Status set_address(std::size_t tensor, void* data) override {
    const CudaDeviceGuard guard(plan_.device);
    if (!guard.ok()) return guard.status();
    const Captured errors;
    if (context_->setTensorAddress(plan_.name(tensor), data)) return {};
    return errors.status(Code::kInvalidArgument,
                         formatted("binding \"{}\" can't be at {}", plan_.name(tensor), data));
  }

  Status set_scratch(void* data, [[maybe_unused]] std::size_t bytes) override {
    const Captured errors;
#if ETRT_TENSORRT_10_1
    context_->setDeviceMemoryV2(data, static_cast<std::int64_t>(bytes));
#else
    context_->setDeviceMemory(data);
#endif
    if (!errors.any()) return {};
    return errors.status(Code::kInternal, formatted("{} bytes of scratch at {} were refused", bytes, data));
  }

  Status enqueue(Stream& stream) override {
    const CudaDeviceGuard guard(plan_.device);
    if (!guard.ok()) return guard.status();
    const Captured errors;
    if (context_->enqueueV3(static_cast<cudaStream_t>(stream.native_handle()))) return {};
    return errors.status(Code::kInternal, "TensorRT couldn't queue the run");
  }

 private:
  Deserialized& plan_;
  std::unique_ptr<IExecutionContext> context_;
};

class NvPlan final : public Plan {
 public:
  NvPlan(std::shared_ptr<PlanRuntime> runtime, int device, ICudaEngine* engine) {
    plan_.runtime = std::move(runtime);
    plan_.device = device;
    plan_.engine.reset(engine);
    for (std::int32_t i = 0; i < engine->getNbIOTensors(); ++i)
      plan_.tensors.push_back(describe_tensor(*engine, i));
  }

  std::span<const PlanTensor> tensors() const noexcept override { return plan_.tensors; }

  std::size_t profiles() const noexcept override {
    return static_cast<std::size_t>(std::max(1, plan_.engine->getNbOptimizationProfiles()));
  }

  Result<ShapeRange> range(std::size_t tensor, std::size_t profile) const override {
    const PlanTensor& t = plan_.tensors[tensor];
    if (t.shape.is_static()) return ShapeRange{t.shape, t.shape, t.shape};
    using nvinfer1::OptProfileSelector;
    std::array<Shape, 3> shapes;
    for (const auto& [selector, shape] :
         {std::pair{OptProfileSelector::kMIN, &shapes[0]}, std::pair{OptProfileSelector::kOPT, &shapes[1]},
          std::pair{OptProfileSelector::kMAX, &shapes[2]}}) {
      const Captured errors;
      const std::optional<Shape> extents = to_shape(
          plan_.engine->getProfileShape(t.name.c_str(), static_cast<std::int32_t>(profile), selector));
      if (!extents) {
        return errors.status(
            Code::kInvalidData,
            formatted("profile {} of the plan has no range for input \"{}\"", profile, t.name));
      }
      *shape = *extents;
    }
    return ShapeRange{shapes[0], shapes[1], shapes[2]};
  }

  std::string format(std::size_t tensor, [[maybe_unused]] std::size_t profile) const override {
    const char* name = plan_.name(tensor);
#if ETRT_TENSORRT_10
    const auto index = static_cast<std::int32_t>(profile);
    if (plan_.engine->getTensorFormat(name, index) == nvinfer1::TensorFormat::kLINEAR) return "";
    const char* description = plan_.engine->getTensorFormatDesc(name, index);
#else
    if (plan_.engine->getTensorFormat(name) == nvinfer1::TensorFormat::kLINEAR) return "";
    const char* description = plan_.engine->getTensorFormatDesc(name);
#endif
    return description != nullptr && *description != '\0' ? description : "unknown";
  }

  std::size_t scratch_bytes([[maybe_unused]] std::size_t profile) const noexcept override {
#if ETRT_TENSORRT_10_1
    return static_cast<std::size_t>(std::max<std::int64_t>(
        0, plan_.engine->getDeviceMemorySizeForProfileV2(static_cast<std::int32_t>(profile))));
#elif ETRT_TENSORRT_10
    return plan_.engine->getDeviceMemorySizeForProfile(static_cast<std::int32_t>(profile));
#else
    return plan_.engine->getDeviceMemorySize();
#endif
  }

  bool hardware_compatible() const noexcept override {
    return plan_.engine->getHardwareCompatibilityLevel() != nvinfer1::HardwareCompatibilityLevel::kNONE;
  }

  std::int64_t streamable_weights() const noexcept override {
#if ETRT_TENSORRT_10_1
    return plan_.engine->getStreamableWeightsSize();
#else
    return 0;
#endif
  }

  Status set_weight_budget([[maybe_unused]] std::int64_t bytes) override {
#if ETRT_TENSORRT_10_1
    const CudaDeviceGuard guard(plan_.device);
    const Captured errors;
    if (plan_.engine->setWeightStreamingBudgetV2(bytes)) return {};
    return errors.status(Code::kInvalidArgument, formatted("weight streaming budget of {} bytes", bytes));
#else
    return {Code::kUnsupported, "TensorRT before 10.1 can't stream weights"};
#endif
  }

  Result<std::unique_ptr<PlanContext>> create_context(std::size_t profile, Stream& stream) override {
    const CudaDeviceGuard guard(plan_.device);
    if (!guard.ok()) return guard.status();
    std::unique_ptr<NvContext> context;
    {
      const Captured errors;
      const std::lock_guard lock(plan_.mutex);
#if ETRT_TENSORRT_10
      IExecutionContext* made =
          plan_.engine->createExecutionContext(nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED);
#else
      IExecutionContext* made = plan_.engine->createExecutionContextWithoutDeviceMemory();
#endif
      if (made == nullptr) {
        return errors.status(Code::kInternal, formatted("no context for profile {} of the plan", profile));
      }
      context = std::make_unique<NvContext>(plan_, made);
    }
    if (Status s = context->select(profile, stream); !s) return s;
    return std::unique_ptr<PlanContext>(std::move(context));
  }

 private:
  Deserialized plan_;
};

/// TensorRT numbers its versions 8600, from 10 on 101600; TensorRT-RTX 10601.
std::array<int, 3> split_version(std::int32_t version) {
  const int step = version >= 10000 ? 10000 : 1000;
  return {version / step, version % step / 100, version % 100};
}

class NvRuntime final : public PlanRuntime, public std::enable_shared_from_this<NvRuntime> {
 public:
  static Result<std::shared_ptr<PlanRuntime>> create() {
    auto made = std::make_shared<NvRuntime>();
    const std::array<int, 3> version = split_version(getInferLibVersion());
    made->name_ =
        formatted("TensorRT{} {}.{}.{}", linked_with_rtx() ? "-RTX" : "", version[0], version[1], version[2]);
    if (!linked_with_rtx() && version[0] != NV_TENSORRT_MAJOR) {
      return Status(
          Code::kUnsupported,
          formatted("etrt was built with the headers of TensorRT {}.{} and finds the library of {}: put a "
                    "library of TensorRT {} on the loader's path, or build etrt with the other headers",
                    NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, made->name_, NV_TENSORRT_MAJOR));
    }
    const Captured errors;
    // With the library's own version: the inline function passes that of the headers, and a
    // library refuses those of another minor version, which it is compatible with.
    made->runtime_.reset(
        static_cast<IRuntime*>(createInferRuntime_INTERNAL(&made->logger_, getInferLibVersion())));
    if (!made->runtime_) return errors.status(Code::kDevice, formatted("{} can't start", made->name_));
    return std::shared_ptr<PlanRuntime>(std::move(made));
  }

  std::string_view name() const noexcept override { return name_; }
  bool declares_aliases() const noexcept override { return ETRT_TENSORRT_ALIASES != 0; }
  bool is_rtx() const noexcept override { return linked_with_rtx(); }

  Result<std::unique_ptr<Plan>> load(std::span<const std::byte> bytes, DeviceId device) override {
    if (bytes.empty()) return Status(Code::kInvalidData, "the plan is empty");
    const CudaDeviceGuard guard(device.index);
    if (!guard.ok()) return guard.status();
    const Captured errors;
    ICudaEngine* engine = runtime_->deserializeCudaEngine(bytes.data(), bytes.size());
    if (engine == nullptr) {
      return errors.status(
          Code::kInvalidData,
          formatted("{} can't read the plan of {} bytes on {} (a plan runs with the TensorRT version "
                    "and on the GPU architecture that it was built for; build it again for these)",
                    name_, bytes.size(), to_string(device)));
    }
    return std::unique_ptr<Plan>(std::make_unique<NvPlan>(shared_from_this(), device.index, engine));
  }

 private:
  Logger logger_;  // Used by runtime_ to its end.
  std::unique_ptr<IRuntime> runtime_;
  std::string name_;
};

}  // namespace

bool linked_with_rtx() noexcept { return split_version(getInferLibVersion())[0] == 1; }

Result<std::shared_ptr<PlanRuntime>> make_nvinfer_runtime() { return NvRuntime::create(); }

}  // namespace etrt::tensorrt
