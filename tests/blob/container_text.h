#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "blob/blob.h"

namespace etrt::test {

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Overwrites an integer in little-endian order.
template <typename T>
void put(std::string& bytes, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[offset + i] = static_cast<char>(value >> (8 * i));
}

/// A container around any metadata, made without the code under test.
inline std::string container(std::string_view magic, std::string_view metadata,
                             std::string_view engine = "engine-bytes") {
  std::string bytes(32, '\0');
  std::copy(magic.begin(), magic.end(), bytes.begin());
  bytes += metadata;
  bytes.resize((bytes.size() + 15) / 16 * 16, '\0');
  put(bytes, 4, std::uint32_t{32});
  put(bytes, 8, static_cast<std::uint32_t>(metadata.size()));
  put(bytes, 12, static_cast<std::uint32_t>(bytes.size()));
  put(bytes, 16, std::uint64_t{engine.size()});
  return bytes.append(engine);
}

/// `text` with the one place where `from` stands changed; "" if there isn't exactly one.
inline std::string edited(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) return {};
  return text.replace(at, from.size(), to);
}

/// The error for `bytes`; "" if they are read.
inline std::string error_of(const std::string& bytes) {
  const Result<Blob> blob = parse_blob(bytes_of(bytes));
  return blob ? "" : blob.status().message();
}

}  // namespace etrt::test
