#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace etrt {

/// Reads little-endian integers and ranges out of untrusted bytes, whatever the host's own
/// byte order and the alignment. nullopt where `offset` and size pass the end; adding the
/// two can't wrap.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  std::size_t size() const noexcept { return bytes_.size(); }

  /// The `size` bytes [offset, offset + size), still owned by whoever owns the whole.
  std::optional<std::span<const std::byte>> slice(std::uint64_t offset, std::uint64_t size) const noexcept {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  }

  std::optional<std::uint32_t> u32(std::uint64_t offset) const noexcept {
    return read<std::uint32_t>(offset);
  }
  std::optional<std::uint64_t> u64(std::uint64_t offset) const noexcept {
    return read<std::uint64_t>(offset);
  }

 private:
  template <typename T>
  std::optional<T> read(std::uint64_t offset) const noexcept {
    const auto raw = slice(offset, sizeof(T));
    if (!raw) return std::nullopt;
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<T>((*raw)[i]) << (8 * i);
    return value;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace etrt
