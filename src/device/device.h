#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "etrt/status.h"
#include "etrt/types.h"

/// Memory, streams and events of one device; src/device/host and src/device/cuda
/// implement them. tests/conformance/device_suite.h runs over all of them.
namespace etrt {

class Device;
class Stream;

/// A point in a stream's order. Recorded again and again, on any stream of its device,
/// never reallocated. Recording it again doesn't move a Stream::wait() that came before.
/// Destroying it leaves queued work and waits as they are.
/// Thread rule: one thread at a time.
class Event {
 public:
  Event() noexcept = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
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
  Stream() noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Waits until all queued work is done, unless the stream is borrowed.
  virtual ~Stream() = default;
  virtual Device& device() const = 0;

  /// Unlike the address, never that of an earlier stream of the process; never 0.
  std::uint64_t id() const noexcept { return id_; }

  /// Queues a copy of `bytes` from `src` to `dst`. Each is memory of this device or of
  /// the host; both must stay valid until the stream has passed the copy. Pageable host
  /// memory may make the call wait.
  virtual Status copy(void* dst, const void* src, std::size_t bytes) = 0;
  /// Queues setting `bytes` at `dst` to `value`.
  virtual Status fill(void* dst, std::uint8_t value, std::size_t bytes) = 0;
  /// `event` marks the end of all work queued so far. kInvalidArgument, like wait(), for
  /// an event of another device.
  virtual Status record(Event& event) = 0;
  /// Work queued from now on runs after what `event` marks at this moment. An event
  /// that was never recorded, or is done, costs nothing. The host doesn't wait.
  virtual Status wait(Event& event) = 0;
  /// Blocks until all queued work is done. Errors: kDevice, also for a fault of
  /// earlier work on this stream. Not from within this stream's own work.
  virtual Status synchronize() = 0;
  /// cudaStream_t, or nullptr.
  virtual void* native_handle() const noexcept = 0;

 private:
  std::uint64_t id_;
};

/// Owns device memory, or borrows it (device() is nullptr then). Move-only. Freed once the device has
/// finished all work that was queued before, on any stream; after release_after() once that event is done.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Device& device, void* data, std::size_t bytes) noexcept
      : device_(&device), data_(data), bytes_(bytes) {}
  /// Memory of somebody else's, who keeps it alive.
  static Buffer borrow(void* data, std::size_t bytes) noexcept {
    Buffer buffer;
    buffer.data_ = data;
    buffer.bytes_ = bytes;
    return buffer;
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const noexcept { return data_; }
  /// As asked for, without the allocator's rounding.
  std::size_t bytes() const noexcept { return bytes_; }
  /// nullptr of borrowed memory.
  Device* device() const noexcept { return device_; }

  /// Empties the buffer; its memory is freed once the work that `event`, of the same
  /// device, marks at this moment is done. Doesn't wait for it.
  void release_after(Event& event) noexcept;
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
  /// A Stream for somebody else's stream (a cudaStream_t), which must outlive it: ending it
  /// neither waits for nor ends that. kUnsupported on a device without such streams.
  virtual Result<std::unique_ptr<Stream>> borrow_stream(void* native);

 protected:
  friend class Buffer;
  /// Returns memory of one of the allocate calls, with the size given there, once the
  /// work that `after` marks is done, or if it is nullptr, all work queued so far on this
  /// device. The host device doesn't block.
  virtual void free(void* data, std::size_t bytes, Event* after) noexcept = 0;
};

/// The host as a device. Never fails.
Device& host_device();

/// kUnsupported in a build without that device, kDevice with the driver's words if it
/// isn't there.
Result<Device*> find_device(DeviceId id);

namespace internal {

/// Answers find_device() for the devices of one type. Thread-safe; the Device must live
/// until the process ends. Errors: kDevice.
using DeviceProvider = Result<Device*> (*)(int index);

/// Makes the devices of a type known; nullptr removes them. Returns the provider that
/// was there. A static initialiser may call it. Thread-safe.
DeviceProvider register_device_provider(DeviceType type, DeviceProvider provider) noexcept;

}  // namespace internal
}  // namespace etrt
