#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "etrt/status.h"
#include "etrt/types.h"

/// The interfaces that an engine kind implements. tests/conformance/ runs one suite
/// over all of them.
namespace etrt {

/// One input or output of an engine's entry.
struct EngineBinding {
  std::string name;  ///< Empty in engines that don't name theirs: matched by place.
  DType dtype = DType::kFloat32;
  Shape shape;      ///< -1 where dynamic.
  Shape min_shape;  ///< Inputs: least extents; equals `shape` where static.
  Shape max_shape;  ///< Greatest extents; of an output, the bound that its memory must hold.
  bool is_input = false;
  int declared_alias = -1;  ///< Of an output: index of the input whose address the engine demands; else -1.
};

/// What a run goes through: a CPU program's method, or a TensorRT plan's profile.
struct EngineEntry {
  std::string name;
  std::vector<EngineBinding> bindings;  ///< Inputs first, then outputs, in engine order.
  /// declared_alias names every address that the engine demands (TensorRT from 10.15 on):
  /// there is no in-place cache update besides those.
  bool declares_aliases = false;

  /// Index into bindings, or -1.
  int find(std::string_view binding) const noexcept;
};

/// Runs one entry of an engine, once at a time: bound addresses, input shapes, scratch.
/// Thread rule: one thread at a time. Addresses and shapes stay until set again.
class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;

  /// Errors: kInvalidArgument with the allowed range; the context is as before.
  virtual Status set_input_shape(std::size_t binding, const Shape& shape) = 0;
  /// Where the binding's tensor is, on the engine's device, Device::kAlignment-aligned for
  /// devices that need it; an output needs room for its max_shape. An aliased output gets
  /// its input's address. Errors: kInvalidArgument.
  virtual Status bind(std::size_t binding, void* data) = 0;
  /// Queues one run on `stream`, a stream of the engine's device. `wait` says that the
  /// caller waits for the stream at once: a host engine then runs on the calling thread
  /// if the stream is idle, and its errors come from here; otherwise from the stream.
  /// After any error the contents of outputs and aliased inputs are unknown.
  virtual Status enqueue(Stream& stream, bool wait) = 0;
  /// Extents of an output in the last run. Valid once that run is done, or, if
  /// shapes_before_run(), once all input shapes are set.
  virtual Result<Shape> output_shape(std::size_t binding) const = 0;
  virtual bool shapes_before_run() const noexcept = 0;
};

/// A compiled computation. Immutable and thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual Device& device() const noexcept = 0;
  virtual std::span<const EngineEntry> entries() const noexcept = 0;
  /// `entry` indexes entries(). Errors: kOutOfMemory, kDevice, kInvalidData.
  virtual Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t entry) = 0;
};

/// Serialized engine bytes and whoever keeps them alive.
struct EngineBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Settings that a program or a caller can give at load.
struct EngineOptions {
  std::int32_t device_id = 0;
  std::int64_t weight_streaming_budget = -1;  ///< Bytes of weights kept on the device; -1: all.
  bool hardware_compatible = false;
  std::string target_platform;
  friend bool operator==(const EngineOptions&, const EngineOptions&) = default;
};

/// Makes engines of one kind from serialized bytes. Thread-safe.
class EngineLoader {
 public:
  virtual ~EngineLoader() = default;
  /// Keeps `bytes.owner` for as long as it reads from them.
  virtual Result<std::unique_ptr<Engine>> load(EngineBytes bytes, const EngineOptions& options) = 0;
};

/// Makes `kind` known ("cpu", "tensorrt", ...). `loader` must live until the process
/// ends. kInvalidArgument if the kind is taken.
Status register_engine_loader(std::string kind, EngineLoader& loader);
/// kUnsupported, with the kinds of this build, if the kind isn't one of them.
Result<EngineLoader*> find_engine_loader(std::string_view kind);
/// Sorted.
std::vector<std::string> engine_kinds();

}  // namespace etrt
