#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/host/host_timeline.h"

namespace etrt {

/// An ordered queue of work on the host, done by a thread of its own. The thread starts
/// when work is first left behind; a stream that is idle lets copy(), fill() and run()
/// do their work on the calling thread, which nobody can tell from the outside.
/// Queueing allocates only while the queue grows beyond its longest so far.
class HostStream final : public Stream {
 public:
  using Function = void (*)(void*);

  enum class Mode : std::uint8_t {
    kInlineWhenIdle,
    kAlwaysQueue,  ///< All work on the stream's thread, so that a missing wait shows (under TSan).
  };

  /// The device makes them: see host_device(). `timeline` is new.
  HostStream(Device& device, std::shared_ptr<internal::HostTimeline> timeline, Mode mode) noexcept;
  ~HostStream() override;

  /// Queues `function(arg)`; it must not throw, nor synchronize() or run() on this stream.
  /// Errors: kOutOfMemory, kDevice if the stream's thread can't be started; not queued.
  Status submit(Function function, void* arg);
  /// submit() and wait until it is done. On the calling thread if the stream is idle.
  Status run(Function function, void* arg);
  /// For work on this stream that went wrong: the next synchronize() returns `why`, or the
  /// first of several, once. Work behind it goes on.
  void report_fault(Status why);

  Device& device() const override { return device_; }
  Status copy(void* dst, const void* src, std::size_t bytes) override;
  Status fill(void* dst, std::uint8_t value, std::size_t bytes) override;
  Status record(Event& event) override;
  Status wait(Event& event) override;
  Status synchronize() override;
  void* native_handle() const noexcept override { return nullptr; }

  /// Work queued from now on runs after the work before `ticket` on `timeline`.
  Status wait(const std::shared_ptr<internal::HostTimeline>& timeline, std::uint64_t ticket);
  /// Queues internal::free_host_memory(data, bytes).
  Status submit_free(void* data, std::size_t bytes);

 private:
  struct Task {
    void (*execute)(const Task&) = nullptr;
    Function function = nullptr;
    void* target = nullptr;
    const void* source = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;  ///< A ticket, or the byte to fill with.
    std::shared_ptr<internal::HostTimeline> timeline = nullptr;
  };

  /// First in, first out. Reuses its memory.
  class Ring {
   public:
    bool empty() const noexcept { return size_ == 0; }
    void push(Task task);
    Task pop() noexcept;

   private:
    std::vector<Task> slots_;  ///< As many as a power of two.
    std::size_t head_ = 0;
    std::size_t size_ = 0;
  };

  /// The task's ticket.
  Result<std::uint64_t> push(Task task);
  /// At once if the stream is idle, else queued.
  Status execute_or_push(Task task);
  /// True if the stream was idle: it is the calling thread's until end_inline().
  bool begin_inline();
  void end_inline();
  /// The running task is done. Under the timeline's mutex.
  void finish() noexcept;
  void work();

  Device& device_;
  const Mode mode_;
  const std::shared_ptr<internal::HostTimeline> timeline_;

  // Guarded by the timeline's mutex.
  Ring tasks_;
  bool running_ = false;  ///< A task is being executed, by the stream's thread or inline.
  bool stopping_ = false;
  Status fault_;
  std::condition_variable work_;
  std::thread thread_;
};

/// nullptr for another device's stream.
HostStream* as_host_stream(Stream& stream) noexcept;

}  // namespace etrt
