#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace etrt {

/// "xxh3:<16 lowercase hex digits>": XXH3-64 of `bytes` with seed 0.
std::string digest(std::span<const std::byte> bytes);

}  // namespace etrt
