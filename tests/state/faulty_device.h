#pragma once

#include <cstring>
#include <memory>

#include "device/device.h"
#include "device/host/host_memory.h"

namespace etrt::internal {

/// A device that isn't the host and fails on demand, as the host device never does. Its
/// streams work at once on host memory.
class FaultyDevice final : public Device {
 public:
  /// Fewer than 0: never.
  int allocations_until_failure = -1;
  int copies_until_failure = -1;
  int records_until_failure = -1;
  bool streams_fail = false;
  std::size_t blocks_alive = 0;

  DeviceId id() const noexcept override { return {DeviceType::kCuda, 5}; }

  Result<Buffer> allocate_zeroed(std::size_t bytes, Stream&) override {
    if (fails(allocations_until_failure)) return Status(Code::kOutOfMemory, "the faulty device is full");
    ++blocks_alive;
    return Buffer(*this, allocate_host_memory(bytes, true), bytes);
  }
  Result<Buffer> allocate(std::size_t bytes, Stream& stream) override {
    return allocate_zeroed(bytes, stream);
  }
  Result<Buffer> allocate_staging(std::size_t bytes) override {
    ++blocks_alive;
    return Buffer(*this, allocate_host_memory(bytes, false), bytes);
  }
  Result<std::unique_ptr<Stream>> create_stream() override {
    if (streams_fail) return fault();
    return std::unique_ptr<Stream>(std::make_unique<FaultyStream>(*this));
  }
  Result<std::unique_ptr<Event>> create_event() override {
    return std::unique_ptr<Event>(std::make_unique<DoneEvent>());
  }

 protected:
  void free(void* data, std::size_t bytes, Event*) noexcept override {
    --blocks_alive;
    free_host_memory(data, bytes);
  }

 private:
  class DoneEvent final : public Event {
   public:
    bool done() const override { return true; }
    Status synchronize() override { return {}; }
  };

  class FaultyStream final : public Stream {
   public:
    explicit FaultyStream(FaultyDevice& device) : device_(device) {}
    Device& device() const override { return device_; }
    Status copy(void* dst, const void* src, std::size_t bytes) override {
      if (fails(device_.copies_until_failure)) return fault();
      std::memcpy(dst, src, bytes);
      return {};
    }
    Status fill(void* dst, std::uint8_t value, std::size_t bytes) override {
      if (fails(device_.copies_until_failure)) return fault();
      std::memset(dst, value, bytes);
      return {};
    }
    Status record(Event&) override { return fails(device_.records_until_failure) ? fault() : Status(); }
    Status wait(Event&) override { return {}; }
    Status synchronize() override { return {}; }
    void* native_handle() const noexcept override { return nullptr; }

   private:
    FaultyDevice& device_;
  };

  static bool fails(int& countdown) { return countdown >= 0 && countdown-- == 0; }
  static Status fault() { return {Code::kDevice, "the faulty device failed"}; }
};

}  // namespace etrt::internal
