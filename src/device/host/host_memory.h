#pragma once

#include <cstddef>

namespace etrt::internal {

/// Device::kAlignment-aligned memory, zeroed if `zeroed`. Large blocks come straight from
/// the system: no page of them is touched, so that they cost memory only as they are
/// used. nullptr if it can't be had. `bytes` > 0.
void* allocate_host_memory(std::size_t bytes, bool zeroed) noexcept;

/// `bytes` as given to allocate_host_memory().
void free_host_memory(void* data, std::size_t bytes) noexcept;

}  // namespace etrt::internal
