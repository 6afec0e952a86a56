#include "etrt/session.h"

#include <cassert>
#include <utility>

#include "state/session_impl.h"

namespace etrt {

Session::Session() : impl_(std::make_shared<internal::SessionImpl>()) {}

Session::~Session() {
  if (impl_ != nullptr) impl_->destroy();
}

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  Session moved(std::move(other));
  std::swap(impl_, moved.impl_);
  return *this;
}

std::int64_t Session::length() const { return impl_->length(); }
SessionStatus Session::status() const noexcept { return impl_->status(); }
std::size_t Session::bytes() const { return impl_->bytes(); }
std::vector<StateInfo> Session::states() const { return impl_->states(); }
Status Session::reset() { return impl_->reset(); }

Result<TensorView> Session::view(std::string_view state_id, std::string_view model_id) const {
  return impl_->view(state_id, model_id);
}

Status Session::adopt(std::string_view state_id, const TensorView& memory, std::int64_t length,
                      std::string_view model_id) {
  return impl_->adopt(state_id, memory, length, model_id);
}

}  // namespace etrt
