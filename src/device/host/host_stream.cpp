#include "device/host/host_stream.h"

#include <cstring>
#include <new>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "base/format.h"
#include "device/host/host_memory.h"

namespace etrt {
namespace {

Status foreign_event() {
  return {Code::kInvalidArgument,
          "a host stream was given an event of another device: create it on the host device"};
}

}  // namespace

void HostStream::Ring::push(Task task) {
  if (size_ == slots_.size()) {
    std::vector<Task> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move(slots_[(head_ + i) & (slots_.size() - 1)]);
    }
    slots_.swap(larger);
    head_ = 0;
  }
  slots_[(head_ + size_) & (slots_.size() - 1)] = std::move(task);
  ++size_;
}

HostStream::Task HostStream::Ring::pop() noexcept {
  Task task = std::move(slots_[head_]);
  head_ = (head_ + 1) & (slots_.size() - 1);
  --size_;
  return task;
}

HostStream::HostStream(Device& device, std::shared_ptr<internal::HostTimeline> timeline, Mode mode) noexcept
    : device_(device), mode_(mode), timeline_(std::move(timeline)) {}

HostStream::~HostStream() {
  {
    std::lock_guard lock(timeline_->mutex_);
    stopping_ = true;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

Status HostStream::submit(Function function, void* arg) {
  return push({.execute = [](const Task& task) { task.function(task.target); },
               .function = function,
               .target = arg})
      .status();
}

Status HostStream::run(Function function, void* arg) {
  if (begin_inline()) {
    function(arg);
    end_inline();
    return {};
  }
  Result<std::uint64_t> ticket = push(
      {.execute = [](const Task& task) { task.function(task.target); }, .function = function, .target = arg});
  if (!ticket.ok()) return ticket.status();
  timeline_->wait_for(*ticket);
  return {};
}

Status HostStream::copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return {};
  return execute_or_push(
      {.execute = [](const Task& task) { std::memcpy(task.target, task.source, task.bytes); },
       .target = dst,
       .source = src,
       .bytes = bytes});
}

Status HostStream::fill(void* dst, std::uint8_t value, std::size_t bytes) {
  if (bytes == 0) return {};
  return execute_or_push(
      {.execute =
           [](const Task& task) { std::memset(task.target, static_cast<int>(task.number), task.bytes); },
       .target = dst,
       .bytes = bytes,
       .number = value});
}

Status HostStream::record(Event& event) {
  internal::HostEvent* mine = internal::as_host_event(event);
  if (mine == nullptr) return foreign_event();
  if (mine->timeline_ != timeline_) mine->timeline_ = timeline_;
  mine->ticket_ = timeline_->queued();
  return {};
}

Status HostStream::wait(Event& event) {
  const internal::HostEvent* marked = internal::as_host_event(event);
  if (marked == nullptr) return foreign_event();
  if (marked->done()) return {};
  return wait(marked->timeline(), marked->ticket());
}

Status HostStream::wait(const std::shared_ptr<internal::HostTimeline>& timeline, std::uint64_t ticket) {
  if (timeline == timeline_ || timeline->reached(ticket)) return {};
  // No circle of waits can form: a ticket names work that was queued before this wait.
  return push({.execute = [](const Task& task) { task.timeline->wait_for(task.number); },
               .number = ticket,
               .timeline = timeline})
      .status();
}

Status HostStream::submit_free(void* data, std::size_t bytes) {
  return execute_or_push(
      {.execute = [](const Task& task) { internal::free_host_memory(task.target, task.bytes); },
       .target = data,
       .bytes = bytes});
}

Status HostStream::synchronize() {
  timeline_->wait_for(timeline_->queued());
  std::lock_guard lock(timeline_->mutex_);
  return std::exchange(fault_, Status());
}

void HostStream::report_fault(Status why) {
  std::lock_guard lock(timeline_->mutex_);
  if (fault_.ok()) fault_ = std::move(why);
}

Result<std::uint64_t> HostStream::push(Task task) {
  std::lock_guard lock(timeline_->mutex_);
  try {
    tasks_.push(std::move(task));
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "no memory to queue more work on a host stream");
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread(&HostStream::work, this);
    } catch (const std::system_error& error) {
      tasks_.pop();
      return Status(Code::kDevice,
                    formatted("can't start the thread of a host stream ({}): have fewer threads or streams",
                              error.what()));
    }
  }
  const std::uint64_t ticket = timeline_->queued_.load(std::memory_order_relaxed) + 1;
  timeline_->queued_.store(ticket, std::memory_order_release);
  work_.notify_one();
  return ticket;
}

Status HostStream::execute_or_push(Task task) {
  if (!begin_inline()) return push(std::move(task)).status();
  task.execute(task);
  end_inline();
  return {};
}

bool HostStream::begin_inline() {
  if (mode_ == Mode::kAlwaysQueue) return false;
  std::lock_guard lock(timeline_->mutex_);
  if (running_ || !tasks_.empty()) return false;
  running_ = true;
  timeline_->queued_.store(timeline_->queued_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return true;
}

void HostStream::end_inline() {
  std::lock_guard lock(timeline_->mutex_);
  finish();
  if (!tasks_.empty()) work_.notify_one();
}

void HostStream::finish() noexcept {
  running_ = false;
  timeline_->done_.store(timeline_->done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  if (timeline_->waiters_ > 0) timeline_->moved_.notify_all();
}

void HostStream::work() {
  std::unique_lock lock(timeline_->mutex_);
  for (;;) {
    work_.wait(lock, [this] { return (!running_ && !tasks_.empty()) || (stopping_ && tasks_.empty()); });
    if (tasks_.empty()) return;
    Task task = tasks_.pop();
    running_ = true;
    lock.unlock();
    task.execute(task);
    // The last reference to another stream's timeline may go here: not under this one's mutex.
    task.timeline.reset();
    lock.lock();
    finish();
  }
}

HostStream* as_host_stream(Stream& stream) noexcept {
  return typeid(stream) == typeid(HostStream) ? static_cast<HostStream*>(&stream) : nullptr;
}

}  // namespace etrt
