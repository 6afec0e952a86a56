#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace etrt::internal {

/// The counters behind etrt::stats(). Relaxed: they order nothing.
struct StatsCounters {
  std::atomic<std::uint64_t> runs{0};
  std::atomic<std::uint64_t> kv_bytes_copied{0};
  std::atomic<std::uint64_t> rebinds{0};
  std::atomic<std::uint64_t> graph_replays{0};
  std::atomic<std::uint64_t> host_syncs{0};
  std::atomic<std::uint64_t> engines{0};
  std::atomic<std::uint64_t> engine_bytes{0};
  std::atomic<std::uint64_t> contexts{0};
  std::atomic<std::uint64_t> sessions{0};
  std::atomic<std::uint64_t> session_bytes{0};
};
StatsCounters& counters() noexcept;

inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}
inline void subtract(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
  counter.fetch_sub(n, std::memory_order_relaxed);
}

/// Copies rows of an aliased cache on the host and counts them: every host copy of a
/// cache in this project goes through here.
void copy_cache_bytes(void* dst, const void* src, std::size_t bytes) noexcept;

}  // namespace etrt::internal
