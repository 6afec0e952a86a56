#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "etrt/session.h"
#include "state/state.h"

namespace etrt::internal {

/// What is behind a Session. Runs hold it through a Lease.
class SessionImpl : public std::enable_shared_from_this<SessionImpl> {
 public:
  SessionImpl();
  ~SessionImpl();

  /// Exclusive use for one run or verb.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&&) = delete;
    Lease(const Lease&) = delete;
    ~Lease();  ///< Ready again, or failed if fail() was called.

    /// The states of `request`, in its order; the span is valid as long as the lease and
    /// stays the same object for the same request until reset or destruction. The first
    /// use allocates and initialises them on `stream`. No string work or allocation when
    /// the request was seen before. Errors, session as before: kOutOfMemory;
    /// kInvalidArgument if a state is there with another dtype, shape, update or device.
    Result<std::span<State* const>> states(const std::shared_ptr<const StateRequest>& request, Stream& stream);
    /// Makes `stream` wait for the session's earlier work, if that was on another one.
    Status order_after_previous(Stream& stream);
    /// The session's work up to now is what `stream` holds.
    Status record(Stream& stream);
    /// From now on, until reset: refused.
    void fail(const Status& why);
    /// Sets the lengths of `states`, flips those that swap. See commit rules in design.
    SessionImpl& session() const noexcept { return *session_; }

   private:
    friend class SessionImpl;
    explicit Lease(SessionImpl& session) noexcept : session_(&session) {}
    SessionImpl* session_;
    bool failed_ = false;
  };

  /// kBusy, kFailed (with the text of the failure), or kNoSession if destroyed.
  Result<Lease> lease();
};

/// The session that a run on this thread uses: innermost scope, else the default, else
/// kNoSession with how to select one. The shared_ptr keeps it over the run.
Result<std::shared_ptr<SessionImpl>> selected_session();

}  // namespace etrt::internal
