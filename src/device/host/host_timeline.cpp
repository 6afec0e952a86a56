#include "device/host/host_timeline.h"

#include <typeinfo>

namespace etrt::internal {

void HostTimeline::wait_for(std::uint64_t ticket) {
  if (reached(ticket)) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  moved_.wait(lock, [&] { return reached(ticket); });
  --waiters_;
}

Status HostEvent::synchronize() {
  if (timeline_ != nullptr) timeline_->wait_for(ticket_);
  return {};
}

HostEvent* as_host_event(Event& event) noexcept {
  // HostEvent is final: comparing types is all that a dynamic_cast would have to do.
  return typeid(event) == typeid(HostEvent) ? static_cast<HostEvent*>(&event) : nullptr;
}

}  // namespace etrt::internal
