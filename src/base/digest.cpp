#include "base/digest.h"

#include <xxhash.h>

#include "base/format.h"

namespace etrt {

std::string digest(std::span<const std::byte> bytes) {
  return formatted("xxh3:{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace etrt
