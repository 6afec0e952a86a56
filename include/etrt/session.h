#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "etrt/status.h"
#include "etrt/types.h"

namespace etrt {

namespace internal {
class SessionImpl;
}

/// How a state is updated by a run.
enum class Update : std::uint8_t {
  kInPlace,  ///< The engine writes the new rows into the buffer that it reads.
  kSwap,     ///< The engine writes a whole new tensor; two buffers change places after the run.
};

/// What a session knows of one state. A copy: it doesn't follow later runs.
struct StateInfo {
  std::string model_id;
  std::string id;
  DType dtype = DType::kFloat32;
  Shape shape;
  int sequence_dim = -1;  ///< -1: not a sequence.
  Update update = Update::kInPlace;
  DeviceId device;
  std::size_t bytes = 0;              ///< Held by the session: two buffers for kSwap, 0 if adopted.
  std::vector<std::int64_t> lengths;  ///< Valid positions, one per batch row; for a state that is no
                                      ///< sequence: positions absorbed, one entry.
};

enum class SessionStatus : std::uint8_t {
  kReady,
  kBusy,    ///< In a run or verb. Nothing but reading lengths, states, bytes and this is allowed.
  kFailed,  ///< A run failed after it had started. As above, and reset() and destruction.
};

/// One conversation's states: KV caches, convolution and recurrent states.
///
/// A session starts empty. A method that names session-owned states gets them from
/// the session selected on its thread (SessionScope), else from the default session;
/// they are allocated and initialised on first use. All methods, all loaded programs
/// and all threads that select the session and name the same model id and state id
/// reach the same memory.
///
/// Threads: a session is in one run at a time; a second one gets Code::kBusy and the
/// session isn't touched. length(), states(), bytes() and status() may be called from
/// any thread at any time, and disturb no run. Different sessions are independent.
/// Streams: device work of consecutive runs and verbs is ordered by the session, also
/// across streams. Lengths count what has been queued.
/// A moved-from session can only be assigned to or destroyed.
class Session {
 public:
  Session();
  /// Frees the states, in stream order. A scope or a default that still selects the
  /// session keeps the memory until it ends; runs are refused from now on (kNoSession).
  /// Waits for device work only if a reset, or the first use of a state with an initial
  /// value, may still be under way.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Positions valid in every sequence state and batch row: where a run can append
  /// without a hole. Without sequence states, what all others have absorbed. 0 for an
  /// empty session.
  std::int64_t length() const;
  /// kBusy inside a run or verb, else kFailed after a failed run.
  SessionStatus status() const noexcept;
  /// Bytes held by this session's states.
  std::size_t bytes() const;
  /// Every state, ordered by model id and id.
  std::vector<StateInfo> states() const;

  /// Every state back to its initial value and length, in the same memory; a failed
  /// session is ready again. Queued after earlier work; the host doesn't wait. kBusy
  /// while in a run, and then nothing has changed; kDevice, kOutOfMemory: the session has
  /// failed, unless nothing could be queued at all.
  Status reset();

  /// The memory of a state: of kSwap, the buffer that the next run reads. Valid until
  /// the session is destroyed, or for kSwap until the next run. Waits until earlier
  /// runs and verbs are done; the session is busy meanwhile. kNotFound (the message lists
  /// the ids) if no run has used it yet; kInvalidArgument if model_id is empty and
  /// several models have a state of that id; kBusy; kFailed.
  Result<TensorView> view(std::string_view state_id, std::string_view model_id = {}) const;

  /// The state's memory is `memory` from now on, as it is: a cache that something else keeps,
  /// such as another delegate. Nothing is copied; what the state held is dropped. Whoever
  /// keeps the memory does so until the session is destroyed or adopts another, and sees what
  /// runs write. Its first `length` positions are valid, in each batch row; its contents have
  /// to be there, or be queued on the stream of the next run.
  /// A state that no run has used yet is made so by the first that does, which refuses memory
  /// that doesn't fit. Waits until earlier runs and verbs are done; the session is busy meanwhile.
  /// Errors, nothing changed: kInvalidArgument for memory of another dtype, shape, device or
  /// alignment (Device::kAlignment on a GPU) than the state, a length outside its capacity, or
  /// an ambiguous id, as of view(); kUnsupported for a state that swaps; kBusy; kFailed.
  Status adopt(std::string_view state_id, const TensorView& memory, std::int64_t length,
               std::string_view model_id = {});

  /// For etrt's own layers.
  const std::shared_ptr<internal::SessionImpl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<internal::SessionImpl> impl_;
};

/// Selects a session on this thread until the scope ends. Scopes nest; the inner one
/// wins, and its end restores the outer. End scopes in reverse order, on the thread
/// that began them.
class SessionScope {
 public:
  explicit SessionScope(const Session& session) noexcept;
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  std::shared_ptr<internal::SessionImpl> impl_;
  internal::SessionImpl* previous_;
};

/// The session for threads that have selected none: for runners that know nothing of
/// sessions. nullptr removes it. Thread-safe. Its memory is held until another (or none)
/// takes its place, also when the Session is destroyed before; runs are then refused.
void set_default_session(const Session* session) noexcept;

}  // namespace etrt
