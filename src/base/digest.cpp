#include "base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace etrt {

std::string digest(std::span<const std::byte> bytes) {
  return fmt::format("xxh3:{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace etrt
