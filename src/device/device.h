#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "etrt/status.h"
#include "etrt/types.h"

/// Memory, streams and events of one device; src/device/host and src/device/cuda
/// implement them. tests/conformance/ runs one suite over all of them.
namespace etrt {

class Device;
class Stream;

/// A point in a stream's order. Recorded again and again, never reallocated.
/// Thread rule: one thread at a time.
class Event {
 public:
  virtual ~Event() = default;
  /// The work before the last record() is done. True if never recorded. Doesn't block.
  virtual bool done() const = 0;
  /// Blocks the calling thread until done(). Errors: kDevice.
  virtual Status synchronize() = 0;
};

/// An ordered queue of device work. Calls return once the work is queued.
/// Thread rule: calls may come from any thread; those of one thread keep their order.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;

  /// Queues a copy of `bytes` from `src` to `dst`. Each is memory of this device or of
  /// the host; both must stay valid until the stream has passed the copy. Pageable host
  /// memory may make the call wait.
  virtual Status copy(void* dst, const void* src, std::size_t bytes) = 0;
  /// Queues setting `bytes` at `dst` to `value`.
  virtual Status fill(void* dst, std::uint8_t value, std::size_t bytes) = 0;
  /// `event` marks the end of all work queued so far.
  virtual Status record(Event& event) = 0;
  /// Work queued from now on runs after what `event` marks at this moment. An event
  /// that was never recorded, or is done, costs nothing. The host doesn't wait.
  virtual Status wait(Event& event) = 0;
  /// Blocks until all queued work is done. Errors: kDevice, also for a fault of
  /// earlier work on this stream.
  virtual Status synchronize() = 0;
  /// cudaStream_t, or nullptr.
  virtual void* native_handle() const noexcept = 0;
};

/// Owns device memory. Move-only; freed in stream order on the stream given to
/// release_on(), or after the device has finished all work that used it.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Device& device, void* data, std::size_t bytes) noexcept
      : device_(&device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device* device() const noexcept { return device_; }
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// One per device in the process; lives until the process ends. Thread-safe.
class Device {
 public:
  static constexpr std::size_t kAlignment = 256;  ///< TensorRT's for bound addresses.

  virtual ~Device() = default;
  virtual DeviceId id() const noexcept = 0;

  /// `bytes` of zeroed memory, kAlignment-aligned, usable by work queued on `stream`
  /// after this call (and by others that wait for it). bytes == 0 gives a Buffer with
  /// a null pointer. Errors: kOutOfMemory with the size asked for.
  virtual Result<Buffer> allocate_zeroed(std::size_t bytes, Stream& stream) = 0;
  /// As above, contents undefined.
  virtual Result<Buffer> allocate(std::size_t bytes, Stream& stream) = 0;
  /// Host memory that the device can copy from and to without a detour.
  virtual Result<Buffer> allocate_staging(std::size_t bytes) = 0;

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;

 protected:
  friend class Buffer;
  /// Returns memory once all queued work that could use it is done; never blocks on
  /// the host device.
  virtual void free(void* data, std::size_t bytes) noexcept = 0;
};

/// The host as a device. Never fails.
Device& host_device();

/// kUnsupported in a build without that device, kDevice with the driver's words if it
/// isn't there.
Result<Device*> find_device(DeviceId id);

}  // namespace etrt
