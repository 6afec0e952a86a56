#include <cassert>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "etrt/session.h"
#include "state/session_impl.h"

namespace etrt {
namespace {

/// Of the innermost scope, which keeps it alive.
thread_local internal::SessionImpl* innermost = nullptr;

struct Default {
  std::mutex mutex;
  std::shared_ptr<internal::SessionImpl> session;  ///< Guarded by mutex.
};

Default& process_default() noexcept {
  // Never destroyed: its memory may be on a device whose driver is shut down by then.
  alignas(Default) static std::byte memory[sizeof(Default)];
  static Default& instance = *new (memory) Default;
  return instance;
}

}  // namespace

SessionScope::SessionScope(const Session& session) noexcept
    : impl_(session.impl()), previous_(std::exchange(innermost, impl_.get())) {
  assert(impl_ != nullptr && "a moved-from session can't be selected");
}

SessionScope::~SessionScope() {
  assert(innermost == impl_.get() && "scopes end in reverse order, on the thread that began them");
  innermost = previous_;
}

void set_default_session(const Session* session) noexcept {
  std::shared_ptr<internal::SessionImpl> selected = session != nullptr ? session->impl() : nullptr;
  Default& current = process_default();
  {
    std::lock_guard lock(current.mutex);
    current.session.swap(selected);
  }
  // What was selected before goes here, outside the lock: it may free memory.
}

namespace internal {

Result<SelectedSession> selected_session() {
  if (innermost != nullptr) return SelectedSession(*innermost);
  Default& current = process_default();
  std::shared_ptr<SessionImpl> session;
  {
    std::lock_guard lock(current.mutex);
    session = current.session;
  }
  if (session == nullptr) {
    return Status(
        Code::kNoSession,
        "no session is selected on this thread, and there is no default one: put an etrt::SessionScope "
        "(in Python `with etrt.Session() as session:`) around the call, or call set_default_session()");
  }
  return SelectedSession(std::move(session));
}

}  // namespace internal
}  // namespace etrt
