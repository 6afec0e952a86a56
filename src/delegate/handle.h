#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache.h"
#include "etrt/types.h"
#include "state/state.h"

namespace etrt {

/// A delegate argument and the engine binding that it feeds or receives.
struct Argument {
  std::size_t binding = 0;  ///< In the engine's entry.
  std::string name;         ///< In the blob.
  DType dtype = DType::kFloat32;
  Shape shape;  ///< -1 where any extent up to `max` is allowed.
  Shape min;
  Shape max;
  int alias_of = -1;      ///< Of an output: the input argument whose memory it shares.
  bool is_cache = false;  ///< Of an input: a caller-owned cache, which an output is aliased to.
};

/// A session-owned state and the bindings that read and write it.
struct StateBinding {
  std::size_t input = 0;
  std::size_t output = 0;  ///< Of a state that the method writes.
};

/// Where a run learns its position and how many positions it appends.
struct PositionArgument {
  std::size_t argument = 0;  ///< Index into Handle::inputs.
  std::int64_t rows = 1;     ///< Batch rows of the sequence states.
  int count_argument = -1;   ///< Input whose extent is the count; -1: `count`.
  std::size_t count_dim = 0;
  std::int64_t count = 1;
  std::int64_t capacity =
      -1;  ///< Least of the caller-owned caches; -1: there is none. Sessions check their own.
};

/// What TensorRTBackend::init makes of a blob: one delegate of one loaded method.
/// Everything that a run needs is resolved here to indices and pointers.
struct Handle {
  std::string method;
  std::shared_ptr<SharedEngine> engine;
  std::size_t entry = 0;
  std::vector<Argument> inputs;       ///< In argument order.
  std::vector<Argument> outputs;      ///< In argument order, aliased ones included.
  std::size_t unaliased_outputs = 0;  ///< Programs may leave the aliased ones out.
  std::vector<StateBinding> states;   ///< In the order of request->specs.
  std::size_t written_states = 0;     ///< The first ones; the method only reads the others.
  std::shared_ptr<const internal::StateRequest> request;  ///< nullptr without session-owned states.
  std::optional<PositionArgument> position;
  bool stage_caches = false;  ///< Caches in host memory are copied to the device and back, and counted.

  /// One thread at a time may run a loaded method.
  std::atomic_flag running;
  /// Scratch of that run, kept to spare allocations.
  std::vector<Shape> input_shapes;
  std::vector<std::int64_t> positions;
};

}  // namespace etrt
