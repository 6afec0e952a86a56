#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "etrt/session.h"
#include "etrt/types.h"

namespace etrt::internal {

/// A named tensor that outlives a run, as a method declares it.
struct StateSpec {
  std::string id;
  DType dtype = DType::kFloat32;
  Shape shape;            ///< Static.
  int sequence_dim = -1;  ///< -1: not a sequence. Batch rows are dim 0 if the state has one
                          ///< before sequence_dim, else there is one row.
  Update update = Update::kInPlace;
  std::shared_ptr<const std::vector<std::byte>> initial;  ///< nullptr: zeros.
  std::int64_t initial_length = 0;

  std::size_t bytes() const noexcept;
  std::int64_t capacity() const noexcept { return sequence_dim < 0 ? 0 : shape[static_cast<std::size_t>(sequence_dim)]; }
};

/// The states that one delegate needs, in its order: what it asks a session for.
/// Interned: equal requests of any number of loads are one object, so that a session
/// finds its answer by pointer.
struct StateRequest {
  std::string model_id;
  std::vector<StateSpec> specs;
  Device* device = nullptr;
};

/// The one object equal to `request`.
std::shared_ptr<const StateRequest> intern(StateRequest request);

/// A state in a session. Only the run that holds the session touches it.
struct State {
  StateSpec spec;
  Buffer buffers[2];               ///< [1] only for kSwap.
  int current = 0;                 ///< Index of the buffer that the next run reads.
  std::vector<std::int64_t> lengths;

  void* read() const noexcept { return buffers[current].data(); }
  /// Where a run writes: read() for kInPlace.
  void* write() const noexcept {
    return spec.update == Update::kSwap ? buffers[1 - current].data() : read();
  }
};

}  // namespace etrt::internal
