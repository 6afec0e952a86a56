#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "etrt/session.h"
#include "etrt/types.h"

namespace etrt::internal {

/// A named tensor that outlives a run, as a method declares it.
struct StateSpec {
  std::string id = {};
  DType dtype = DType::kFloat32;
  Shape shape;            ///< Static.
  int sequence_dim = -1;  ///< -1: not a sequence.
  Update update = Update::kInPlace;
  std::shared_ptr<const std::vector<std::byte>> initial = nullptr;  ///< bytes() of them; nullptr: zeros.
  std::int64_t initial_length = 0;  ///< Positions that the initial contents hold.

  bool is_sequence() const noexcept { return sequence_dim >= 0; }
  /// Of one buffer. SIZE_MAX, which nothing can allocate, if the shape isn't static or too large.
  std::size_t bytes() const noexcept;
  /// Entries of State::lengths: dim 0 of a sequence whose sequence_dim comes later, else 1.
  std::size_t rows() const noexcept;
  /// Positions that fit. Of a sequence only.
  std::int64_t capacity() const noexcept { return shape[static_cast<std::size_t>(sequence_dim)]; }

  /// Initial values are equal if their bytes are.
  friend bool operator==(const StateSpec& a, const StateSpec& b) noexcept;
};

/// "" if a method that declares `wanted` can use a state made as `present`, else how they
/// differ: `is float32 [1, 4] in this session, but this method declares float16 [1, 4]`.
/// Ids aren't compared.
std::string difference(const StateSpec& present, const StateSpec& wanted);

/// The states that one delegate needs, in its order: what it asks a session for.
struct StateRequest {
  std::string model_id;
  std::vector<StateSpec> specs;
  Device* device = nullptr;
  friend bool operator==(const StateRequest&, const StateRequest&) = default;
};

/// The one object in the process that is equal to `request`, so that a session finds its
/// answer by pointer, whoever asks. Lives as long as somebody holds it. Thread-safe.
std::shared_ptr<const StateRequest> intern(StateRequest request);

/// A state in a session. Contents, `current` and `lengths` belong to whoever holds the
/// session's lease; others read `lengths` under the session's mutex.
struct State {
  std::string model_id;
  StateSpec spec;
  Device* device = nullptr;
  Buffer buffers[2];                  ///< [1] only for kSwap.
  int current = 0;                    ///< Index of the buffer that the next run reads.
  std::vector<std::int64_t> lengths;  ///< spec.rows() entries. Of a sequence, the valid positions
                                      ///< [0, length) of each batch row; else the positions absorbed.

  void* read() const noexcept { return buffers[current].data(); }
  /// Where a run writes: read() for kInPlace.
  void* write() const noexcept { return spec.update == Update::kSwap ? buffers[1 - current].data() : read(); }
  /// Held by the state.
  std::size_t bytes() const noexcept { return adopted() ? 0 : buffers[0].bytes() + buffers[1].bytes(); }
  /// The memory is somebody else's.
  bool adopted() const noexcept { return buffers[0].device() == nullptr; }
};

/// Memory of somebody else's for a state, with its valid positions.
struct Adoption {
  TensorView memory;
  std::int64_t length = 0;
};

/// `state "layers.0.k" of model "smollm2"`, for messages.
std::string describe(const State& state);

/// A state with its memory: `adoption` if given, else buffers zeroed for work queued on
/// `stream`, lengths initial; an initial value isn't there yet. Errors: kInvalidArgument for
/// a spec that contradicts itself, kOutOfMemory, kDevice, those of adopt(); they name the state.
Result<std::unique_ptr<State>> create_state(const StateRequest& request, const StateSpec& spec,
                                            Stream& stream, const Adoption* adoption = nullptr);

/// `adoption` is the state's memory from now on; its own is freed. Errors as
/// Session::adopt(), nothing changed.
Status adopt(State& state, const Adoption& adoption);

/// Queues on `stream` the initial contents into the buffer that the next run reads. Lengths
/// stay. spec.initial must live until the stream has passed it. Errors: as Stream::copy.
Status initialise(State& state, Stream& stream);

}  // namespace etrt::internal
