
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "device/device.h"
#include "device/host/host_memory.h"
#include "device/host/host_stream.h"
#include "device/host/host_timeline.h"

namespace etrt {
namespace {

using internal::HostEvent;
using internal::HostTimeline;

class HostDevice final : public Device {
 public:
  HostDevice() : freer_(*this, std::make_shared<HostTimeline>(), HostStream::Mode::kInlineWhenIdle) {
    const char* mode = std::getenv("ETRT_HOST_STREAMS");
    if (mode != nullptr && std::string_view(mode) == "queue") mode_ = HostStream::Mode::kAlwaysQueue;
  }

  DeviceId id() const noexcept override { return {}; }

  Result<Buffer> allocate_zeroed(std::size_t bytes, Stream&) override { return allocate(bytes, true); }
  Result<Buffer> allocate(std::size_t bytes, Stream&) override { return allocate(bytes, false); }
  Result<Buffer> allocate_staging(std::size_t bytes) override { return allocate(bytes, false); }

  Result<std::unique_ptr<Stream>> create_stream() override {
    auto timeline = std::make_shared<HostTimeline>();
    {
      std::lock_guard lock(mutex_);
      std::erase_if(timelines_, [](const std::shared_ptr<HostTimeline>& old) {
        return old.use_count() == 1 && old->reached(old->queued());
      });
      timelines_.push_back(timeline);
    }
    return std::unique_ptr<Stream>(std::make_unique<HostStream>(*this, std::move(timeline), mode_));
  }

  Result<std::unique_ptr<Event>> create_event() override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
  }

 protected:
  void free(void* data, std::size_t bytes, Event* after) noexcept override {
    // If waiting or freeing can't be queued (no memory, no thread), the block leaks: that
    // harms less than freeing it too early.
    const HostEvent* event = after == nullptr ? nullptr : internal::as_host_event(*after);
    bool ordered = true;
    if (event != nullptr) {
      ordered = event->done() || freer_.wait(event->timeline(), event->ticket()).ok();
    } else {
      std::lock_guard lock(mutex_);
      for (const std::shared_ptr<HostTimeline>& timeline : timelines_) {
        const std::uint64_t queued = timeline->queued();
        if (!timeline->reached(queued)) ordered = freer_.wait(timeline, queued).ok() && ordered;
      }
    }
    if (ordered) static_cast<void>(freer_.submit_free(data, bytes));
  }

 private:
  Result<Buffer> allocate(std::size_t bytes, bool zeroed) {
    if (bytes == 0) return Buffer(*this, nullptr, 0);
    void* data = internal::allocate_host_memory(bytes, zeroed);
    if (data == nullptr) {
      return Status(Code::kOutOfMemory, formatted("the host has no {} bytes left for one block", bytes));
    }
    return Buffer(*this, data, bytes);
  }

  HostStream::Mode mode_ = HostStream::Mode::kInlineWhenIdle;
  HostStream freer_;  ///< Frees memory that queued work may still use.
  std::mutex mutex_;
  std::vector<std::shared_ptr<HostTimeline>> timelines_;  ///< Of every stream. Guarded by mutex_.
};

}  // namespace

Device& host_device() {
  // Never destroyed: streams and buffers with static lifetime may outlive any order of destruction.
  static HostDevice& device = *new HostDevice;
  return device;
}

}  // namespace etrt
