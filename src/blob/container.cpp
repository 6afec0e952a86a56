#include "blob/container.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>

#include "base/byte_reader.h"
#include "base/format.h"
#include "blob/checks.h"
#include "blob/words.h"

namespace etrt::internal {

namespace {

// Header: magic, u32 metadata offset, u32 metadata size, u32 engine offset, u64 engine size,
// 8 reserved bytes, of which upstream's writer sets the first.
constexpr std::size_t kMagicSize = 4;
constexpr std::size_t kMetadataOffsetAt = 4;
constexpr std::size_t kMetadataSizeAt = 8;
constexpr std::size_t kEngineOffsetAt = 12;
constexpr std::size_t kEngineSizeAt = 16;
constexpr std::size_t kReservedAt = 24;
constexpr std::size_t kHeaderSize = 32;
constexpr std::size_t kEngineAlignment = 16;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : formatted("\\x{:02x}", byte);
  }
  return shown;
}

template <typename T>
void put(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace

Result<Container> split_container(std::span<const std::byte> bytes) {
  const ByteReader reader(bytes);
  const std::uint64_t size = reader.size();
  if (size < kHeaderSize) return invalid("blob: {} bytes, but the header alone has {}", size, kHeaderSize);

  Container parts;
  const std::string_view magic = text_of(*reader.slice(0, kMagicSize));
  const std::optional<BlobVersion> version = value_of(kMagics, magic);
  if (!version) return invalid("magic: \"{}\" is none of {}", printable(magic), list_of(kMagics));
  parts.version = *version;

  const std::uint64_t metadata_offset = *reader.u32(kMetadataOffsetAt);
  const std::uint64_t metadata_size = *reader.u32(kMetadataSizeAt);
  const std::uint64_t engine_offset = *reader.u32(kEngineOffsetAt);
  const std::uint64_t engine_size = *reader.u64(kEngineSizeAt);
  if (metadata_offset < kHeaderSize) {
    return invalid("metadata_offset: {} is inside the header, which ends at {}", metadata_offset,
                   kHeaderSize);
  }
  const auto metadata = reader.slice(metadata_offset, metadata_size);
  if (!metadata) {
    return invalid("metadata_size: {} bytes at {} pass the blob's end at {}", metadata_size, metadata_offset,
                   size);
  }
  if (engine_offset % kEngineAlignment != 0) {
    return invalid("engine_offset: {} is no multiple of {}", engine_offset, kEngineAlignment);
  }
  if (engine_offset < metadata_offset + metadata_size) {
    return invalid("engine_offset: {} is inside the metadata, which ends at {}", engine_offset,
                   metadata_offset + metadata_size);
  }
  const auto engine = reader.slice(engine_offset, engine_size);
  if (!engine) {
    return invalid("engine_size: {} bytes at {} pass the blob's end at {}", engine_size, engine_offset, size);
  }
  parts.metadata = text_of(*metadata);
  parts.engine = *engine;
  return parts;
}

Result<std::vector<std::byte>> join_container(const Container& parts) {
  const std::size_t metadata_end = kHeaderSize + parts.metadata.size();
  const std::size_t engine_offset =
      (metadata_end + kEngineAlignment - 1) / kEngineAlignment * kEngineAlignment;
  if (engine_offset > std::numeric_limits<std::uint32_t>::max()) {
    return invalid("metadata_size: {} bytes don't fit in 32 bits", parts.metadata.size());
  }
  std::vector<std::byte> bytes;
  try {
    bytes.resize(engine_offset + parts.engine.size());
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, formatted("blob: {} bytes of host memory can't be had",
                                                engine_offset + parts.engine.size()));
  }
  const std::string_view magic = word_of(kMagics, parts.version);
  std::ranges::copy(std::as_bytes(std::span(magic)), bytes.begin());
  put(bytes, kMetadataOffsetAt, static_cast<std::uint32_t>(kHeaderSize));
  put(bytes, kMetadataSizeAt, static_cast<std::uint32_t>(parts.metadata.size()));
  put(bytes, kEngineOffsetAt, static_cast<std::uint32_t>(engine_offset));
  put(bytes, kEngineSizeAt, std::uint64_t{parts.engine.size()});
  bytes[kReservedAt] = std::byte{1};
  std::ranges::copy(std::as_bytes(std::span(parts.metadata)), bytes.begin() + kHeaderSize);
  std::ranges::copy(parts.engine, bytes.begin() + static_cast<std::ptrdiff_t>(engine_offset));
  return bytes;
}

}  // namespace etrt::internal
