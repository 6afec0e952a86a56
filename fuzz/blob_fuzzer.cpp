// Any bytes are either refused with a message or read; and what was read, written and read
// again, is the same.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "blob/blob.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "blob_fuzzer: %s\n", what);
  std::abort();
}

bool same(const etrt::Blob& a, const etrt::Blob& b) {
  return a.bindings == b.bindings && a.aliases == b.aliases && a.states == b.states &&
         a.position == b.position && a.hardware_compatible == b.hardware_compatible &&
         a.device_id == b.device_id && a.serialized_metadata == b.serialized_metadata &&
         a.target_platform == b.target_platform && a.engine_kind == b.engine_kind &&
         a.engine_entry == b.engine_entry && a.engine_key == b.engine_key && a.model_id == b.model_id &&
         std::ranges::equal(a.engine, b.engine);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const etrt::Result<etrt::Blob> blob = etrt::parse_blob(bytes);
  if (!blob) {
    require(!blob.status().message().empty(), "refused without a message");
    return 0;
  }
  require(etrt::validate(*blob).ok(), "read, but not valid");
  const etrt::Result<std::vector<std::byte>> written = etrt::write_blob(*blob);
  require(written.ok(), written.status().message().c_str());
  const etrt::Result<etrt::Blob> again = etrt::parse_blob(*written);
  require(again.ok(), again.status().message().c_str());
  require(same(*blob, *again), "another blob after writing and reading");
  return 0;
}
