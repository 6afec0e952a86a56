#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/device.h"

namespace etrt {

class HostStream;

namespace internal {

/// How far a host stream has got. Its tasks are numbered from 1 in queue order, and
/// finish in that order, so a number (a ticket) marks a point for good: an event that
/// is recorded anew just names another one. Outlives the stream. Thread-safe.
class HostTimeline {
 public:
  /// The ticket of the last task queued.
  std::uint64_t queued() const noexcept { return queued_.load(std::memory_order_acquire); }
  /// The task and all before it are done, and what they wrote can be seen.
  bool reached(std::uint64_t ticket) const noexcept {
    return done_.load(std::memory_order_acquire) >= ticket;
  }
  /// Blocks until reached().
  void wait_for(std::uint64_t ticket);

 private:
  friend class etrt::HostStream;

  std::mutex mutex_;  ///< Also guards the stream's queue.
  std::condition_variable moved_;
  int waiters_ = 0;
  std::atomic<std::uint64_t> queued_{0};  ///< Written under mutex_.
  std::atomic<std::uint64_t> done_{0};    ///< Written under mutex_.
};

/// A ticket on a timeline.
class HostEvent final : public Event {
 public:
  bool done() const override { return timeline_ == nullptr || timeline_->reached(ticket_); }
  Status synchronize() override;

  /// nullptr if never recorded.
  const std::shared_ptr<HostTimeline>& timeline() const noexcept { return timeline_; }
  std::uint64_t ticket() const noexcept { return ticket_; }

 private:
  friend class etrt::HostStream;

  std::shared_ptr<HostTimeline> timeline_;
  std::uint64_t ticket_ = 0;
};

/// nullptr for another device's event.
HostEvent* as_host_event(Event& event) noexcept;

}  // namespace internal
}  // namespace etrt
