#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "etrt/status.h"
#include "etrt/types.h"

/// What etrt asks of TensorRT, in its own words. nvinfer_shim.cpp implements it on
/// libnvinfer, libnvinfer_lean or libtensorrt_rtx; tests/engines/tensorrt/ has a stand-in
/// that computes on the host. Nothing here throws; every Status carries what the runtime
/// logged about the failure.
namespace etrt::tensorrt {

/// One input or output of a plan. The same for all of its profiles.
struct PlanTensor {
  std::string name;
  bool is_input = false;
  std::optional<DType> dtype;  ///< nullopt: a type that etrt doesn't have, such as FP8.
  std::string dtype_name;      ///< The runtime's name of it, for messages.
  Shape shape;                 ///< -1 where a profile or the data decides.
  bool on_host = false;        ///< Its values are wanted in host memory: it decides shapes.
  std::string aliased_input;   ///< Of an output: the input whose address the plan demands. Else empty.
};

/// Extents that a profile allows an input to have. All static.
struct ShapeRange {
  Shape min;
  Shape opt;
  Shape max;
};

/// Runs one profile of a plan. Tensors are given as indices into Plan::tensors().
/// Thread rule: one thread at a time; it may end on any thread. Must not end before its
/// runs are done, nor after its plan.
class PlanContext {
 public:
  virtual ~PlanContext() = default;
  virtual Status set_input_shape(std::size_t tensor, const Shape& shape) = 0;
  /// Extents for the input shapes set now; -1 where they don't decide.
  virtual Result<Shape> shape(std::size_t tensor) const = 0;
  virtual Status set_address(std::size_t tensor, void* data) = 0;
  /// Device memory of at least Plan::scratch_bytes(profile), in use from each enqueue to
  /// the end of its run. The caller keeps it.
  virtual Status set_scratch(void* data, std::size_t bytes) = 0;
  /// Queues one run. Needs every address, input shape and the scratch.
  virtual Status enqueue(Stream& stream) = 0;
};

/// A deserialized plan. tensors() to streamable_weights() may be called from any thread.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual std::span<const PlanTensor> tensors() const noexcept = 0;
  /// At least 1.
  virtual std::size_t profiles() const noexcept = 0;
  /// Of an input. Equal extents where the tensor is static.
  virtual Result<ShapeRange> range(std::size_t tensor, std::size_t profile) const = 0;
  /// Empty for row-major without padding or vectors, else the runtime's description.
  virtual std::string format(std::size_t tensor, std::size_t profile) const = 0;
  /// Device memory that a context of the profile needs besides weights and bindings.
  virtual std::size_t scratch_bytes(std::size_t profile) const noexcept = 0;
  /// It may run on GPUs of other architectures than the one it was built on.
  virtual bool hardware_compatible() const noexcept = 0;

  /// Bytes of weights that needn't all be in device memory; 0 if it wasn't built so.
  virtual std::int64_t streamable_weights() const noexcept = 0;
  /// Keeps at most `bytes` of the streamable weights in device memory. Only while no
  /// context exists.
  virtual Status set_weight_budget(std::int64_t bytes) = 0;

  /// Without scratch. What it queues on `stream` must be done before the context is
  /// used on another stream. Thread rule: one thread at a time.
  virtual Result<std::unique_ptr<PlanContext>> create_context(std::size_t profile, Stream& stream) = 0;
};

/// A TensorRT library, ready to load plans. Thread-safe. Plans keep it alive.
class PlanRuntime {
 public:
  virtual ~PlanRuntime() = default;
  /// "TensorRT 8.6.0", for messages.
  virtual std::string_view name() const noexcept = 0;
  /// Its plans name the aliases that they demand (TensorRT from 10.15 on).
  virtual bool declares_aliases() const noexcept = 0;
  /// Plans list the GPUs that they run on, instead of a hardware compatibility level.
  virtual bool is_rtx() const noexcept = 0;
  /// Reads a plan onto `device`; `bytes` aren't used after the call. Errors: kInvalidData
  /// for a plan that is truncated, corrupt, or of another version or GPU; kOutOfMemory.
  virtual Result<std::unique_ptr<Plan>> load(std::span<const std::byte> bytes, DeviceId device) = 0;
};

}  // namespace etrt::tensorrt
