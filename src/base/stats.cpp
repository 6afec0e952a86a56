#include "etrt/stats.h"

#include <cstring>

#include "base/stats_counters.h"

namespace etrt {

Stats stats() noexcept {
  const internal::StatsCounters& c = internal::counters();
  const auto get = [](const std::atomic<std::uint64_t>& v) { return v.load(std::memory_order_relaxed); };
  Stats s;
  s.runs = get(c.runs);
  s.kv_bytes_copied = get(c.kv_bytes_copied);
  s.rebinds = get(c.rebinds);
  s.graph_replays = get(c.graph_replays);
  s.host_syncs = get(c.host_syncs);
  s.engines = get(c.engines);
  s.engine_bytes = get(c.engine_bytes);
  s.contexts = get(c.contexts);
  s.sessions = get(c.sessions);
  s.session_bytes = get(c.session_bytes);
  return s;
}

namespace internal {

StatsCounters& counters() noexcept {
  static StatsCounters c;
  return c;
}

void copy_cache_bytes(void* dst, const void* src, std::size_t bytes) noexcept {
  std::memcpy(dst, src, bytes);
  add(counters().kv_bytes_copied, bytes);
}

}  // namespace internal

}  // namespace etrt
