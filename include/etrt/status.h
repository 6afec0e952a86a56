#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace etrt {

/// Why a call failed. The message of a Status says what to do about it.
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalidArgument,  ///< The caller passed something that can never work.
  kInvalidData,      ///< A file or blob is truncated, corrupt or contradicts itself.
  kUnsupported,      ///< Valid, but this build, device or engine can't do it.
  kNotFound,         ///< A named thing (state, binding, key, engine kind) isn't there.
  kNoSession,        ///< A state is session-owned and no session is selected.
  kBusy,             ///< The session is in a run, on this or another thread.
  kFailed,           ///< The session failed in an earlier run; reset it first.
  kOutOfRange,       ///< A position or length is outside the cache.
  kOutOfMemory,      ///< Host or device memory can't be had.
  kDevice,           ///< The device or its driver reported an error.
  kInternal,         ///< A broken invariant of etrt itself. Report it.
};

/// "InvalidArgument", "Busy", ...
std::string_view to_string(Code code) noexcept;

/// Success, or a code and a message. Copyable; success carries no allocation.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return code_; }
  /// Empty on success.
  const std::string& message() const noexcept { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok() && "a Result without a value needs an error");
  }

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /// Ok when there is a value.
  const Status& status() const noexcept { return status_; }

  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Text of the last error that etrt returned through ExecuTorch on this thread
/// ("" when there was none). ExecuTorch itself carries only a number. Valid until
/// the next failing call on this thread.
const char* last_error() noexcept;

}  // namespace etrt
