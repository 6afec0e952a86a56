#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "blob/blob.h"
#include "etrt/status.h"

/// The bytes around metadata and engine: header and padding.
namespace etrt::internal {

/// Points into the bytes that were split.
struct Container {
  BlobVersion version = BlobVersion::kTR01;
  std::string_view metadata;
  std::span<const std::byte> engine;
};

/// kInvalidData if the header contradicts itself or the size.
Result<Container> split_container(std::span<const std::byte> bytes);

/// The inverse. kInvalidData for metadata of 4 GiB, kOutOfMemory.
Result<std::vector<std::byte>> join_container(const Container& parts);

}  // namespace etrt::internal
