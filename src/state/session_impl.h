#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "etrt/session.h"
#include "state/position.h"
#include "state/state.h"

namespace etrt::internal {

/// What is behind a Session. Runs and verbs hold it through a Lease; docs/state_model.md
/// has the whole protocol.
///
/// Two things guard it. The lease (an atomic flag, taken or refused, never waited for)
/// gives one run or verb everything. The mutex lets any thread read lengths, ids and sizes
/// meanwhile: who holds the lease takes it only to publish new states and new lengths.
class SessionImpl {
 public:
  SessionImpl() noexcept;
  /// Memory is freed once the session's work is done. Waits for that work only if it may
  /// still read initial values, or if a reset() is queued.
  ~SessionImpl();
  SessionImpl(const SessionImpl&) = delete;
  SessionImpl& operator=(const SessionImpl&) = delete;

  /// Exclusive use for one run or verb; of one thread at a time. The session must be kept
  /// alive meanwhile (SelectedSession does). A run calls, in this order: states(),
  /// plan_positions(), order_after_previous(), restart(), the engine's enqueue, record(),
  /// commit(); from restart() on, any error must go to fail().
  class Lease {
   public:
    Lease(Lease&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();  ///< The session is ready again, or failed.

    /// The states of `request`, in its order. The same memory for an equal request, as long
    /// as somebody holds it and the session lives. A request that the session has seen costs
    /// a search over the requests seen, by pointer. One that it hasn't: states with its
    /// model id and ids are found, or created and initialised on `stream`, a stream of
    /// request->device, ordered for later runs.
    /// Errors, no state added: kInvalidArgument if a spec contradicts itself or the state
    /// that is there, kUnsupported if that is on another device, kOutOfMemory, kDevice.
    Result<std::span<State* const>> states(const std::shared_ptr<const StateRequest>& request,
                                           Stream& stream);

    /// Makes `stream` wait for the session's earlier work on its device. Costs nothing if
    /// that was on the same stream. The host doesn't wait. Errors: kDevice.
    Status order_after_previous(Stream& stream);

    /// Queues on `stream` the initial contents of those states that start over in `plan`.
    /// On error some may have lost their contents: fail().
    Status restart(std::span<State* const> states, const PositionPlan& plan, Stream& stream);

    /// The session's work on its device so far ends with what `stream` holds now.
    Status record(Stream& stream);

    /// Lengths as `plan` says; buffers that swap do. Allocates nothing.
    void commit(std::span<State* const> states, const PositionPlan& plan);

    /// From now on, until reset(), the session is refused with the text of `why`. What
    /// `stream` holds is waited for before the memory is used again.
    void fail(const Status& why, Stream& stream);

   private:
    friend class SessionImpl;
    explicit Lease(SessionImpl& session) noexcept : session_(&session) {}

    SessionImpl* session_;
  };

  /// Takes the session, or says why not: kBusy, kFailed with the text of the failure,
  /// kNoSession if its Session is destroyed. Never waits. Nothing has changed on error.
  Result<Lease> lease();

  /// The Session is gone: no more leases. The memory lives as long as this object.
  void destroy() noexcept;

  // As in Session. Any thread, any time.
  std::int64_t length() const;
  SessionStatus status() const noexcept;
  std::size_t bytes() const;
  std::vector<StateInfo> states() const;
  // They take a lease.
  Status reset();
  Result<TensorView> view(std::string_view state_id, std::string_view model_id);
  Status adopt(std::string_view state_id, const TensorView& memory, std::int64_t length,
               std::string_view model_id);

 private:
  /// Model id, state id.
  using Key = std::pair<std::string, std::string>;

  /// Where the session's work on one device ends.
  struct Order {
    Device* device = nullptr;
    std::unique_ptr<Event> event;
    std::uint64_t last_stream = 0;                 ///< Stream::id(), 0: none.
    std::unique_ptr<Stream> own_stream = nullptr;  ///< For verbs; made by the first one.
  };

  struct Answer {
    std::shared_ptr<const StateRequest> request;  ///< Held: its address stays its own.
    std::vector<State*> states;
  };

  static constexpr std::uint8_t kReadyFlags = 0;
  static constexpr std::uint8_t kBusyFlag = 1;
  static constexpr std::uint8_t kFailedFlag = 2;
  static constexpr std::uint8_t kDestroyedFlag = 4;

  /// Why a lease was refused.
  Status refusal(std::uint8_t flags) const;
  Result<Order*> order(Device& device);
  static Status order_after_previous(const Order& order, Stream& stream);
  static Status record(Order& order, Stream& stream);
  /// nullptr if it isn't there. Errors if what is there can't serve.
  Result<State*> find(const StateRequest& request, const StateSpec& spec) const;
  Result<std::vector<State*>> find_or_create(const StateRequest& request, Stream& stream);
  /// All states of the order's device back to their initial contents, on its own stream.
  Status reinitialise(Order& order);
  /// The one state of that id, nullptr if there is none, or kInvalidArgument if several
  /// models have one.
  Result<State*> find(std::string_view state_id, std::string_view model_id) const;
  /// What was adopted for a state that is yet to be made.
  std::map<Key, Adoption>::const_iterator adoption_for(const std::string& model_id,
                                                       const std::string& state_id) const;
  /// What view() couldn't find, and what there is.
  Status unknown_state(std::string_view state_id, std::string_view model_id, bool ambiguous) const;

  std::atomic<std::uint8_t> flags_{kReadyFlags};

  // Whoever holds the lease.
  std::vector<Answer> answers_;
  std::vector<Order> orders_;
  std::map<Key, Adoption> adoptions_;  ///< For states that no run has used yet; "": of any model.

  // Changed by whoever holds the lease, under mutex_; read by him, and by others under mutex_.
  mutable std::mutex mutex_;
  std::map<Key, std::unique_ptr<State>> states_;
  std::size_t bytes_ = 0;
  std::string failure_;
};

/// The session of a run on this thread. Keeps it alive until the end of the run.
class SelectedSession {
 public:
  explicit SelectedSession(SessionImpl& scoped) noexcept : session_(&scoped) {}
  explicit SelectedSession(std::shared_ptr<SessionImpl> process_default) noexcept
      : session_(process_default.get()), keep_(std::move(process_default)) {}

  SessionImpl& operator*() const noexcept { return *session_; }
  SessionImpl* operator->() const noexcept { return session_; }

 private:
  SessionImpl* session_;
  std::shared_ptr<SessionImpl> keep_;  ///< Empty for a scope's session: the scope keeps it.
};

/// The innermost SessionScope's session on this thread, else the default session, else
/// kNoSession with how to select one. Of a scope it costs a thread-local read; the result
/// must not outlive the scope.
Result<SelectedSession> selected_session();

}  // namespace etrt::internal
