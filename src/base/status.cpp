#include "etrt/status.h"

#include <utility>

#include "base/last_error.h"

namespace etrt {

namespace {

thread_local std::string last_error_text;

}  // namespace

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kInvalidData:
      return "InvalidData";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kNotFound:
      return "NotFound";
    case Code::kNoSession:
      return "NoSession";
    case Code::kBusy:
      return "Busy";
    case Code::kFailed:
      return "Failed";
    case Code::kOutOfRange:
      return "OutOfRange";
    case Code::kOutOfMemory:
      return "OutOfMemory";
    case Code::kDevice:
      return "Device";
    case Code::kInternal:
      return "Internal";
  }
  return "Internal";
}

const char* last_error() noexcept { return last_error_text.c_str(); }

namespace internal {

void set_last_error(std::string text) noexcept { last_error_text = std::move(text); }

}  // namespace internal

}  // namespace etrt
