#pragma once

#include <cstdint>

namespace etrt {

/// Process-wide counters. Each is counted where the thing happens; none is derived.
struct Stats {
  std::uint64_t runs = 0;             ///< Delegate runs that were committed.
  std::uint64_t kv_bytes_copied = 0;  ///< Bytes of aliased caches copied during runs (0 is the point).
  std::uint64_t rebinds = 0;          ///< State addresses changed on an execution context.
  std::uint64_t graph_replays = 0;    ///< Runs served by a captured CUDA graph.
  std::uint64_t host_syncs = 0;       ///< Times a run made the host wait for a device stream.
  std::uint64_t engines = 0;          ///< Engines alive now.
  std::uint64_t engine_bytes = 0;     ///< Serialized bytes of those engines.
  std::uint64_t contexts = 0;         ///< Execution contexts alive now.
  std::uint64_t sessions = 0;         ///< Sessions alive now.
  std::uint64_t session_bytes = 0;    ///< Memory that sessions hold now, in bytes.
};

/// A snapshot. Thread-safe; the fields are read one after another.
Stats stats() noexcept;

}  // namespace etrt
