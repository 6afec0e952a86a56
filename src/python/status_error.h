#pragma once

#include <exception>
#include <utility>

#include "etrt/status.h"

namespace etrt::python {

/// A Status on its way to Python, where it becomes an EtrtError.
struct StatusError : std::exception {
  explicit StatusError(Status s) : status(std::move(s)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

inline void check(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

}  // namespace etrt::python
